"""Programs that are run, and waits that say what they wait for."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

POLL_SECONDS: Final = 1.0
SCENARIO_MINUTES: Final = 15.0  # that all steps together may take, images not counted
TEXT_MAX: Final = 4000  # letters of what a program said that are shown

T = TypeVar("T")


class CommandError(Exception):
    """A program did not succeed; the text has its output."""


def run(command: Sequence[str], stdin: str = "", seconds: float = 60.0) -> str:
    """Run a program and return its output.

    Raises:
        CommandError: it failed, or took longer than `seconds`, and was killed.
    """
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{' '.join(command)}: took longer than {seconds:.0f} s") from error
    if done.returncode:
        said = (done.stderr + done.stdout)[-TEXT_MAX:]
        raise CommandError(f"{' '.join(command)}: exit {done.returncode}: {said}")
    return done.stdout


class Waiter:
    """Waits, each time within a bound, and all together within another one."""

    def __init__(self) -> None:
        self._until = 0.0
        self.begin()

    def begin(self, minutes: float = SCENARIO_MINUTES) -> None:
        """Begin to count what all waits together may take."""
        self._until = time.monotonic() + minutes * 60

    def wait(self, what: str, check: Callable[[], T | None], seconds: float) -> T:
        """Look again and again until there is something true, and return that.

        What a program fails with meanwhile, such as a node that does not answer, is waited out.

        Raises:
            AssertionError: it was not there in time; the text says what failed at last.
        """
        began = time.monotonic()
        deadline = min(began + seconds, self._until)
        print(f"  waits for {what} ({seconds:.0f} s at most)", flush=True)
        last = ""
        while True:
            try:
                found = check()
            except CommandError as error:
                found, last = None, f": {error}"
            now = time.monotonic()
            if found:
                print(f"    there after {now - began:.1f} s", flush=True)
                return found
            assert now < deadline, f"waited {now - began:.0f} s for {what}{last}"
            time.sleep(POLL_SECONDS)
