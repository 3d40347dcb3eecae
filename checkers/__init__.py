"""Finds where a Python project starts work, and checks that each such place is allowed and owned.

The commands are thin; everything they do can be imported:

>>> from pathlib import Path
>>> from checkers.engine import Scan, scan
>>> tree = scan(Scan(Path.cwd() / "fixtures/sites/layout", jobs=1))
>>> [(site.path, site.line, site.api) for file in tree.files for site in file.sites]
[('script.py', 4, 'os.system'), ('script.py', 5, 'os.popen'), ('src/app/tools.py', 3, 'os.system')]

``checkers.manifests`` loads what a project declares and ``checkers.rules`` judges a tree by it; ``checkers.report``
writes what came of it. ``docs/architecture.md`` shows the whole way.
"""
