"""`python -m snippets._site`."""

from snippets._site.cli import main

raise SystemExit(main())
