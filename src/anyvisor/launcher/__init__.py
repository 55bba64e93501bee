"""What runs inside a launcher before the VMM, and when it is asked to stop."""
