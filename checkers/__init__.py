"""Finds where a Python project starts work, and checks that each such place is allowed and owned."""
