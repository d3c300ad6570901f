"""A publisher's session with one queue."""

from __future__ import annotations

from mypy_extensions import i64

from headrace_broker.runtime.contract.port import QueueClient


class Link:
    """A session with one queue, as far as publishes are concerned."""

    def __init__(self, client: QueueClient) -> None:
        self.client = client  # the runtime's end
        self.pending_confirms: i64 = 0  # publishes that wait for their confirm
        self.congested = False  # the queue client asked for a pause
        self.touched = False  # there is something to flush
        self.closed = False  # the session is over: nothing may be said any more

    @property
    def has_consumers(self) -> bool:
        """True while consumers depend on the session."""
        return False

    @property
    def idle(self) -> bool:
        """True while closing the session loses nothing that the client counts on."""
        return not (self.pending_confirms or self.congested)

    def end(self) -> None:
        """End the session; publishes that were handed over still go to their queue."""
        if self.touched:
            self.client.flush()
        self.client.close()
