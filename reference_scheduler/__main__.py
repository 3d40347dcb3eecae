"""Starts ``refsched``, so that whatever happens, from its imports on, ends with a status and at most one line."""

from __future__ import annotations

import os
import sys

DEBUG = "SPAWNGATE_DEBUG"
"""The variable that lets a defect show its traceback, as for the checks."""


def main() -> None:
    """Run the command that the arguments of the process name."""
    try:
        from reference_scheduler.cli import main as refsched

        refsched(prog_name="refsched")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        advice = f"please report it ({DEBUG}=1 shows the traceback)"
        message = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"error: internal error: {message}; {advice}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
