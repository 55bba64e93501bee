"""The drivers that ship with Anyvisor, each behind the HRI."""
