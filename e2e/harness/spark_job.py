"""A Spark driver in processes of its own, which a test kills, pauses and starts again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from e2e.harness.cluster import wait_for

START_SECONDS: Final = (
    900.0  # for Spark and its next batch; a loaded machine needs minutes for a JVM
)
STOP_SECONDS: Final = 300.0  # for the batch that runs


class SparkJob:
    """A program that runs Spark; its JVM and Python workers belong to it.

    Args:
        program: path of the Python file.
        arguments: of each run.
        log: file for all that its runs write to standard output and error.
    """

    def __init__(self, program: Path, arguments: list[str], log: Path) -> None:
        self._command = [sys.executable, str(program), *arguments]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SparkJob:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill()

    @property
    def text(self) -> str:
        """Return the output of all runs."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        """Run it, in a session of its own."""
        assert self._process is None
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdout=out, stderr=out, start_new_session=True
            )

    def wait_for(self, what: str, check: Any, seconds: float = START_SECONDS) -> Any:
        """Wait for something while it runs.

        Raises:
            AssertionError: it ended instead, or that did not come.
        """

        def look() -> Any:
            found = check()
            if not found:
                assert self._process is not None
                code = self._process.poll()
                assert code is None, f"the job ended with {code}:\n{self.text[-8000:]}"
            return found

        return wait_for(what, look, seconds)

    def kill(self) -> None:
        """SIGKILL the driver with its JVM; child processes end by themselves, and are awaited."""
        process = self._over()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        wait_for("Spark's workers to end", lambda: not session(process.pid), STOP_SECONDS)

    def stop(self) -> int:
        """Tell it to stop (SIGTERM), and return with what code it did."""
        process = self._over()
        process.terminate()
        try:
            return process.wait(STOP_SECONDS)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            wait_for("Spark's workers to end", lambda: not session(process.pid), STOP_SECONDS)

    def end(self, seconds: float = START_SECONDS) -> int:
        """Wait until it ends by itself, and return with what code it did."""
        process = self._over()
        try:
            return process.wait(seconds)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            wait_for("Spark's workers to end", lambda: not session(process.pid), STOP_SECONDS)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop all of its processes in their tracks, and let them go on at the end."""
        assert self._process is not None
        pids = session(self._process.pid)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def _over(self) -> subprocess.Popen[bytes]:
        process, self._process = self._process, None
        assert process is not None, "it does not run"
        return process


def session(leader: int) -> list[int]:
    """Return the processes of a session that live, the zombies not."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it has ended meanwhile
            continue
        if int(of) == leader and state != "Z":
            found.append(int(path.parent.name))
    return found
