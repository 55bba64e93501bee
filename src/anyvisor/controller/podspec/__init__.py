"""The launcher pod of an instance, rendered from the instance and its plan.

Labels, annotations, scheduling, resources, claims, secrets, probes, grace period and host name are what other
software of a cluster relies on (KubeVirt's shape); command, mounts and helper volumes are this project's own.
"""
