"""`python -m anyvisor`: the command line."""

from anyvisor.cli.main import program

program()
