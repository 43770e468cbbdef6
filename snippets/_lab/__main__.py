"""`python -m snippets._lab --help`."""

import sys

from snippets._lab.cli import main

if __name__ == "__main__":  # a fresh child imports it
    sys.exit(main())
