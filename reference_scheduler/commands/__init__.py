"""The commands of ``refsched``, one module each; see :mod:`reference_scheduler.cli`."""
