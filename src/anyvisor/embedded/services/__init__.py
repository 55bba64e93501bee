"""Services of the embedded control plane: who stands behind them, how packets get there, and their names.

On a cluster, Kubernetes' own controllers, kube-proxy and the cluster's DNS do this.
"""
