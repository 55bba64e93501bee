"""The subresources of the virtualization API: what one may do to a VM beyond reading and writing its objects.

A pure core (`decide`) says what a call answers, what it writes and what the node agent is asked; a thin shell
(`service`, `streams`) carries it out.
"""
