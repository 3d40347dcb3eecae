"""A job that starts a family of processes, each by a trick that is meant to lose its track.

Run as ``family.py TOKEN TRICK DEPTH END``: every process, down to DEPTH, has two children. Each member but the first
becomes ``sleep`` under the name TOKEN. When all are there, the first one writes ``ready``, and exits (END is ``exit``)
or stays (``stay``).
"""

from __future__ import annotations

import os
import sys


def member(token: str, trick: str, depth: int, ready: int) -> None:
    """Become a member of the family."""
    if trick in ("setsid", "all"):
        os.setsid()
    elif trick == "group":
        os.setpgid(0, 0)
    if depth:
        children(token, trick, depth - 1, ready)
    os.write(ready, b".")
    os.close(ready)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.execve("/bin/sleep", [token, "600"], {} if trick in ("scrubbed", "all") else os.environ)


def children(token: str, trick: str, depth: int, ready: int) -> None:
    """Fork two members; orphans are children of a process that ends at once."""
    for _ in range(2):
        if trick in ("orphan", "all"):
            middle = os.fork()
            if middle:
                os.waitpid(middle, 0)
                continue
            if os.fork():
                os._exit(0)
            member(token, trick, depth, ready)
        elif os.fork() == 0:
            member(token, trick, depth, ready)


def main(token: str, trick: str, depth: str, end: str) -> None:
    """Start the family and wait for all of it."""
    read, write = os.pipe()
    os.set_inheritable(write, False)
    children(token, trick, int(depth) - 1, write)
    os.close(write)
    count = 0
    while data := os.read(read, 4096):
        count += len(data)
    print(f"ready {count}", flush=True)
    if end == "stay":
        os.execve("/bin/sleep", [token, "600"], os.environ)


main(*sys.argv[1:])
