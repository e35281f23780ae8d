"""`python -m saccade`: the command line where its script is not on the path."""

from __future__ import annotations

from saccade.cli import main

if __name__ == "__main__":
    main()
