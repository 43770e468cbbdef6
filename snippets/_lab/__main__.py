"""`python -m snippets._lab --help`."""

import sys

from .cli import main

sys.exit(main())
