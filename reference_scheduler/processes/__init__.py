"""The one place that starts processes; of imports only `sys`, for the guardian runs without installed packages."""

import sys

if sys.platform == "win32":
    raise ImportError("the live scheduler needs Linux or macOS; see docs/processes.md")
