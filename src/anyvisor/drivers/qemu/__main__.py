"""`python -m anyvisor.drivers.qemu --hri SOCK --fd SOCK`."""

import argparse

from anyvisor.drivers.qemu import main

parser = argparse.ArgumentParser(prog="anyvisor.drivers.qemu", description="The QEMU driver behind the HRI.")
parser.add_argument("--hri", required=True, help="unix socket to serve the HRI on")
parser.add_argument("--fd", required=True, help="unix socket (SOCK_SEQPACKET) on which descriptors come")
arguments = parser.parse_args()
main(arguments.hri, arguments.fd)
