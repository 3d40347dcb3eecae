# Two commands do all set-up on a machine with Python >= 3.11, git and make:
#   make check   the checks of this project over this repository, the second as a job of its own scheduler
#   make test    lint, types, the checks and the tests; what CI runs
# Another interpreter: make PYTHON=python3.13 test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup check lint types test fuzz torture recall bench clean

help:
	@echo 'make check   run check-bypass and check-ownership over this repository, the second as a job of the scheduler'
	@echo 'make test    ruff, formatting, types, the checks, the tests'
	@echo 'make fuzz    a million random events through the scheduler, every check after each'
	@echo 'make torture a minute of killed schedulers: nothing acknowledged lost, nothing run twice that may not'
	@echo 'make lint | types | recall | bench | clean'

setup: $(INSTALLED)

# Repeated only when what is installed changes; a set-up that broke off leaves no stamp and is made anew.
# pip comes first: the commands that an older one writes import re, which is a tenth of a run in which nothing changed.
$(INSTALLED): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || \
		{ echo 'make: $(PYTHON) not found; spawngate needs Python 3.11 or newer: make PYTHON=/path/to/python3 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $(PYTHON) is $$($(PYTHON) -V 2>&1); spawngate needs Python 3.11 or newer:" \
			"make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	@rm -f $@
	@$(PYTHON) -m venv --clear $(VENV) || \
		{ echo 'make: $(PYTHON) cannot make a virtual environment; install its venv module (Debian: python3-venv)' >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# The journal of the job is build/state/spawngate/runs/; a scheduler of the user that is running is left alone.
check: $(INSTALLED)
	$(BIN)/check-bypass
	env -u XDG_RUNTIME_DIR -u REFSCHED_SOCKET XDG_STATE_HOME=$(CURDIR)/build/state \
		$(BIN)/refsched run --kind lint -- $(BIN)/check-ownership

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

# One recipe, so that it keeps its order under make -j and the last line is pytest's.
test: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/check-bypass
	$(BIN)/check-ownership
	$(BIN)/python -m pytest

# The tests do the same with fewer and shorter histories.
fuzz: $(INSTALLED)
	$(BIN)/refsched fuzz --seed 0 --seeds 2500 --events 400

# Kills schedulers at random for a minute; nothing acknowledged may be lost, nothing run twice that may not.
torture: $(INSTALLED)
	PYTHONPATH=.:tests/reference_scheduler $(BIN)/python tests/reference_scheduler/torture.py 60

# Downloads four large projects; writes docs/accuracy.md and docs/performance.md.
recall: $(INSTALLED)
	$(BIN)/python benchmarks/recall.py

# Speed beside ruff and bandit, for which it takes an hour and downloads the same projects; writes docs/performance.md.
bench: $(INSTALLED)
	PYTHONPATH=. $(BIN)/python benchmarks/scan.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
