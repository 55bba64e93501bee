"""Persistent volumes on this machine: made for claims, opened for machines, removed with their claims."""
