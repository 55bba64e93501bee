"""The only part with node power: it starts, watches, adopts and ends the machines of one node."""
