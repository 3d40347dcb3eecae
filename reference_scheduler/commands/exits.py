"""How commands end."""

from __future__ import annotations

import click

REFUSED = 1
USAGE = 2
TRY_AGAIN = 3
INTERRUPTED = 130
READER_LEFT = 141
"""What shells make of SIGPIPE, which ends other programs whose output nobody reads any more (``| head``)."""
EXIT_STATUS = (
    "Exit status: 0 done, 1 refused, 2 bad usage or configuration, 3 not now (nobody answers, busy, stopping, full), "
    "130 interrupted, 141 nobody reads the output any more."
)


class Stopped(click.ClickException):
    """The command cannot go on: why, in one line, and its exit status."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(" ".join(message.split()))
        self.exit_code = exit_code  # type: ignore[misc] # click declares it for the class
