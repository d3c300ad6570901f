"""A client that works in a thread of its own while the test breaks things."""

from __future__ import annotations

import threading
from abc import abstractmethod
from types import TracebackType
from typing import Final, Self

STOP_SECONDS: Final = 30.0  # a connection attempt may have to time out


class Worker(threading.Thread):
    """Runs `work` until it is done or told to stop; leaving its `with` block stops it.

    Attributes:
        failure: what `work` raised, for the test to raise.
        progress: notified whenever there is news.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.failure: BaseException | None = None
        self.progress = threading.Condition()
        self._halt = threading.Event()

    @abstractmethod
    def work(self) -> None:
        """Do the work; look at `_halt` now and then."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._halt.set()
        self.join(STOP_SECONDS)

    def halt(self) -> None:
        """Tell it to stop, without waiting."""
        self._halt.set()

    def run(self) -> None:
        """Work, and keep what goes wrong."""
        try:
            self.work()
        except BaseException as failure:  # noqa: BLE001 - handed to the test, which raises it
            self.failure = failure
            with self.progress:
                self.progress.notify_all()
