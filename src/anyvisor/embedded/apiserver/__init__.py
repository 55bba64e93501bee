"""The Kubernetes API machinery for one machine: a sans-I/O handler over SQLite, and a thin HTTP shell."""
