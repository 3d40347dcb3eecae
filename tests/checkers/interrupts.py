"""How a test starts the commands in order to interrupt them."""

from __future__ import annotations

import sys

_START = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "runpy.run_module('checkers', run_name='__main__', alter_sys=True)"
)
INTERRUPTIBLE = (sys.executable, "-c", _START)
"""``python -m checkers``, also where the tests run with SIGINT ignored, as jobs in the background of a shell do."""
