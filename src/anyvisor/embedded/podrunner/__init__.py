"""The stand-in for a kubelet, for launcher pods on one simulated node."""
