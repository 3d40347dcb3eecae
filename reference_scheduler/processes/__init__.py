"""The one place that starts processes; empty of imports, for the guardian runs without installed packages."""
