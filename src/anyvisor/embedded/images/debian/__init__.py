"""A full Debian disk for VMs, built by mmdebstrap: cloud-init, an SSH server and the guest agent in it."""
