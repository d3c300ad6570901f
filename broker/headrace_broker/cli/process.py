"""A process that was started earlier, perhaps by another command: found again, never mistaken.

A pid alone may have gone to another program. The record of a process therefore holds the time at
which the kernel started it and the kernel's boot, and signals go through a pidfd, which stays
with the process it was opened for.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from pathlib import Path

import msgspec

START_TIME_FIELD = 22  # of /proc/PID/stat; see proc(5)


class ProcessRecord(msgspec.Struct, frozen=True):
    """Identity of a process among all on this machine.

    Attributes:
        started: clock ticks between the kernel's boot and the start of the process.
        boot: the kernel's boot id.
    """

    pid: int
    started: int
    boot: str


def identify(pid: int) -> ProcessRecord | None:
    """Return the record of a running process, None when there is none (or only its remains)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the program's name may hold blanks and brackets
    if fields[0] in ("Z", "X"):
        return None
    return ProcessRecord(pid=pid, started=int(fields[START_TIME_FIELD - 3]), boot=boot)


def write_record(path: Path, record: ProcessRecord) -> None:
    """Write a process record in one step: a reader sees all of it or the old one."""
    temporary = path.with_suffix(".new")
    temporary.write_bytes(msgspec.json.encode(record))
    temporary.replace(path)


def read_record(path: Path) -> ProcessRecord | None:
    """Return the recorded process if it still runs, None otherwise."""
    try:
        record = msgspec.json.decode(path.read_bytes(), type=ProcessRecord)
    except (OSError, msgspec.DecodeError):
        return None
    return record if identify(record.pid) == record else None


class RunningProcess:
    """A handle on the process of a record; use it in a `with` statement.

    Raises:
        ProcessLookupError: at entry, when the process is gone.
    """

    def __init__(self, record: ProcessRecord) -> None:
        self._record = record
        self._descriptor = -1

    def __enter__(self) -> RunningProcess:
        descriptor = os.pidfd_open(self._record.pid)
        if identify(self._record.pid) != self._record:
            os.close(descriptor)
            raise ProcessLookupError(f"process {self._record.pid} is gone")
        self._descriptor = descriptor
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._descriptor)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; a process that ended meanwhile is left alone."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def wait(self, seconds: float) -> bool:
        """Wait until the process has ended; return False when it has not after `seconds`."""
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        return bool(poller.poll(max(0.0, seconds) * 1000))
