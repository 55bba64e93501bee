"""`python -m anyvisor.drivers.cloud_hypervisor --hri SOCK --fd SOCK [--binary PROGRAM]`."""

import argparse

from anyvisor.drivers.cloud_hypervisor import main

parser = argparse.ArgumentParser(
    prog="anyvisor.drivers.cloud_hypervisor", description="The Cloud Hypervisor driver behind the HRI."
)
parser.add_argument("--hri", required=True, help="unix socket to serve the HRI on")
parser.add_argument("--fd", required=True, help="unix socket (SOCK_SEQPACKET) on which descriptors come")
parser.add_argument("--binary", default="", help="the program; default: $ANYVISOR_CLOUD_HYPERVISOR, else on PATH")
arguments = parser.parse_args()
main(arguments.hri, arguments.fd, arguments.binary)
