"""Places pods on the nodes of this machine, by the rules and in the words of kube-scheduler."""
