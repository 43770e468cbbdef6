"""`python -m snippets._lab --help`."""

import sys

from snippets._lab.cli import main

sys.exit(main())
