"""``python -m checkers bypass|ownership``: the commands without their console scripts."""

from __future__ import annotations

from checkers.warm import main

if __name__ == "__main__":
    main()
