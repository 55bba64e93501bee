"""The Kubernetes virtualization API on any hypervisor."""

__version__ = "0.1.0"
