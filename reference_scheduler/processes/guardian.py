"""The one process that a scheduler starts itself: parent of its supervisors, and what is left when they are gone.

It costs one start of an interpreter per scheduler; supervisors are forks of it, small and quick to make. When the
scheduler ends, in whatever way, the guardian ends everything below it and then itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import sys
import time

from reference_scheduler.processes import tree
from reference_scheduler.processes.lineage import Lineage
from reference_scheduler.processes.supervisor import CHUNK_BYTES, Supervisor, end, wake_on_child

REQUEST = struct.Struct("!cI")
SUPERVISE = b"+"
SETTLE = b"?"
RESCAN_MS = 20
LOOK_MS = 1000
"""How often to see whether the scheduler is there, on systems that do not tell."""
PATIENCE_S = 5.0
"""How long supervisors may take to end what only they know."""


class Guardian:
    """Forks a supervisor for each socket that is handed to it; kills what a lost supervisor leaves."""

    def __init__(self, control: socket.socket, scheduler_pid: int) -> None:
        self._control = control
        self._scheduler_pid = scheduler_pid
        self._life, self._life_held = os.pipe()
        self._supervisors: set[int] = set()
        self._settling: list[int] = []
        self._has_strays = False
        self._wake = wake_on_child()
        self._poll = select.poll()
        for fd in (control.fileno(), self._wake):
            self._poll.register(fd, select.POLLIN)
        # A fork of the scheduler may hold its end of the socket open, so look at the process itself as well.
        if tree.HAS_PIDFD:
            self._poll.register(os.pidfd_open(scheduler_pid), select.POLLIN)
        self._patience_ms = None if tree.HAS_PIDFD else LOOK_MS
        self._adopts = tree.adopt_orphans()

    def serve(self) -> None:
        """Work until the scheduler is gone, then end everything."""
        with contextlib.suppress(ConnectionError):
            while os.getppid() == self._scheduler_pid and self._turn():
                pass
        os.close(self._life_held)
        if not self._adopts:
            self._wait_for_supervisors()
        end(Lineage())

    def _wait_for_supervisors(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while self._supervisors and time.monotonic() < until:
            time.sleep(RESCAN_MS / 1000)  # the socket, at its end, is always ready
            self._reap()

    def _turn(self) -> bool:
        """Do what there is to do, once; return whether the scheduler is still there."""
        if self._reap() or self._has_strays:
            self._has_strays = self._end_strays()
        for pid in [pid for pid in self._settling if not self._has_strays and pid not in self._supervisors]:
            self._control.sendall(REQUEST.pack(SETTLE, pid))
            self._settling.remove(pid)
        ready = [fd for fd, _ in self._poll.poll(RESCAN_MS if self._has_strays else self._patience_ms)]
        if self._wake in ready:
            os.read(self._wake, CHUNK_BYTES)
        return self._control.fileno() not in ready or self._obey()

    def _obey(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._control, REQUEST.size, 1)
        if not data:
            return False
        what, pid = REQUEST.unpack(data)
        if what == SUPERVISE:
            for fd in fds:  # none, if this process may not have one more
                os.set_inheritable(fd, False)  # a descriptor that is received comes as one to be passed on
                self._supervise(socket.socket(fileno=fd))
        else:
            self._settling.append(pid)
        return True

    def _supervise(self, control: socket.socket) -> None:
        try:
            pid = os.fork()
        except OSError:
            control.close()  # which tells the scheduler
            return
        if pid == 0:
            try:
                os.close(self._life_held)
                self._control.close()
                Supervisor(control, self._life).serve()
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(0)
        control.close()
        self._supervisors.add(pid)

    def _reap(self) -> bool:
        """Collect the children that ended; return whether there was any."""
        reaped = []
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                reaped.append(pid)
        self._supervisors.difference_update(reaped)
        return bool(reaped)

    def _end_strays(self) -> bool:
        """Kill what is a child without being a supervisor, left by one that ended; return whether there was any."""
        below = tree.descendants(os.getpid())
        strays = {process.pid for process in below if process.parent == os.getpid()} - self._supervisors
        for process in below:
            if process.parent in strays:
                strays.add(process.pid)
            if process.pid in strays:
                with contextlib.suppress(PermissionError):
                    tree.send_signal(process, signal.SIGKILL)
        return bool(strays)


def join(group: str) -> None:
    """Move into a control group, where then all children are born; if that fails, everything else still holds."""
    with contextlib.suppress(OSError), open(f"{group}/cgroup.procs", "w") as file:  # noqa: PTH123 - less to import
        file.write("0")


def main() -> None:
    """Run as ``guardian SOCKET SCHEDULER_PID GROUP``; the socket is an inherited descriptor, the group may be empty."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    control, scheduler_pid = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    control.set_inheritable(False)
    group = sys.argv[3]
    if group:
        join(group)
    with contextlib.suppress(ProcessLookupError):  # the scheduler has ended already
        Guardian(control, scheduler_pid).serve()
    if group:
        join(os.path.dirname(group))  # noqa: PTH120 - less to import
        with contextlib.suppress(OSError):
            os.rmdir(group)  # noqa: PTH106
