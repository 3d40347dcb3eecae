"""Runs one command and prints what it took, as JSON: seconds, processor seconds, peak MiB, exit status.

    python -I -S benchmarks/cost_of.py STDERR_FILE COMMAND [ARGUMENT ...]

A process of its own, and a small one: Linux counts as a child's peak memory at least what its parent had when it
started the child. Processor time and memory include the command's own children; memory is that of the largest process.
"""

import json
import os
import sys
import time

KIB = 1024


def main() -> None:
    """Start the command with its output thrown away and its errors kept, and wait for it."""
    errors, command = sys.argv[1], sys.argv[2:]
    actions = [
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
    ]
    started = time.perf_counter()
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    _, status, usage = os.wait4(pid, 0)
    wall_s = time.perf_counter() - started
    cpu_s = usage.ru_utime + usage.ru_stime
    print(json.dumps([wall_s, cpu_s, usage.ru_maxrss / KIB, os.waitstatus_to_exitcode(status)]))


if __name__ == "__main__":
    main()
