"""Can this driver run this machine, at what cost, and if not, what would work: pure functions over data."""
