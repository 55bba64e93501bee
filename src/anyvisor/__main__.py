"""`python -m anyvisor`: the command line."""

import sys

from anyvisor.cli.main import main

sys.exit(main())
