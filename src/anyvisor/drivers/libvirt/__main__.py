"""`python -m anyvisor.drivers.libvirt --hri SOCK --fd SOCK`."""

import argparse

from anyvisor.drivers.libvirt import main

parser = argparse.ArgumentParser(prog="anyvisor.drivers.libvirt", description="The libvirt driver behind the HRI.")
parser.add_argument("--hri", required=True, help="unix socket to serve the HRI on")
parser.add_argument("--fd", required=True, help="unix socket (SOCK_SEQPACKET) on which descriptors come")
arguments = parser.parse_args()
main(arguments.hri, arguments.fd)
