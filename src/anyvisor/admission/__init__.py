"""Defaults and validation of the served API: pure functions over plain JSON objects.

Nothing here does I/O or reads a clock; what a rule must know besides the object (the cluster's configuration,
related objects, the time, random numbers) comes in with the request. The entry points are in `dispatch`.
"""
