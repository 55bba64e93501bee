"""The same system on a Kubernetes cluster: one process per component, each in a pod of its own."""
