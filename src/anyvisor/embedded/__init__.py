"""Embedded mode: the control plane of one machine, without a cluster."""
