"""What is filled in where a user said nothing, each value with what gave it."""
