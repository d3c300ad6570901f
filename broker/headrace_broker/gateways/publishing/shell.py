"""Surroundings of a connection: a socket, one timer and a place to run operations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

from mypy_extensions import mypyc_attr

from headrace_broker.codecs.delivery_encoder import BodyFrames
from headrace_broker.model.limits import OUTPUT_FLUSH_BYTES


@mypyc_attr(allow_interpreted_subclasses=True)
class Shell:
    """Implemented by the asyncio protocol, and by tests.

    In return it calls `receive`, `flush`, `writable_changed`, `timer_fired` and `lost`.
    """

    @abstractmethod
    def wake(self) -> None:
        """Call the connection's `flush` once, when the current loop turn's callbacks have run."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Hand bytes to the socket; may call `writable_changed` before it returns."""

    def write_body(self, body: BodyFrames) -> None:
        """Hand a large body to the socket, before all that is written from now on; as `write`."""
        while body.left > 0:
            self.write(body.take(OUTPUT_FLUSH_BYTES))

    @abstractmethod
    def set_reading(self, reading: bool) -> None:
        """Start or stop reading the socket."""

    @abstractmethod
    def set_timer(self, seconds: float) -> None:
        """Call the connection's `timer_fired` once in so many seconds; replaces the one set before.

        Args:
            seconds: 0 for never.
        """

    @abstractmethod
    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back once in so many seconds, unless the socket is gone; replaces the one before."""

    @abstractmethod
    def backlog(self) -> int:
        """Return how many written bytes the socket has not taken yet."""

    @abstractmethod
    def start(self, operation: Coroutine[Any, Any, None]) -> None:
        """Run an operation beside everything else; it handles its own exceptions."""

    def released(self) -> None:
        """Forget the connection: its socket is gone, and it has given back all that it had."""

    @abstractmethod
    def disconnect(self) -> None:
        """Close the socket once everything written is sent."""

    @abstractmethod
    def abort(self) -> None:
        """Close the socket at once."""
