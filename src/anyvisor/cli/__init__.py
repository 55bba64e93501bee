"""The command line. One module a command; everything else is imported when a command runs."""
