"""What a node holds for its publishing connections, and whose sockets are read.

Each connection may hold what is still free (its threshold), at most `held_octets`. So no more is
held than the bound, however many connections there are, and those that want more than their share
get equal ones. Such a threshold needs no list of who wants how much.

Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches".
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from headrace_broker.flow.flow_limits import FlowLimits

HELD_PART: Final = 4  # a quarter of the node's bound is for what connections hold
FREE_OCTETS: Final = 4096  # may be held for any connection: frames that are not publishes pass


@mypyc_attr(allow_interpreted_subclasses=True)
class Reader:
    """Who reads a connection's socket."""

    @abstractmethod
    def may_read(self, reading: bool) -> None:
        """Read the socket, or leave it unread; called at changes only, and must not block."""


@final
class Share:
    """What is held for one connection.

    Attributes:
        held: octets of whole publishes.
        partial: octets of frames and contents that have not arrived as a whole.
        missing: octets of those still to come, as far as they are announced.
        full: its socket must not be read.
    """

    def __init__(self, shares: Shares, reader: Reader) -> None:
        self.held: i64 = 0
        self.partial: i64 = 0
        self.missing: i64 = 0
        self.full = False
        self._quiet: i64 = 0
        self._shares = shares
        self._reader = reader
        self._closed = False

    @property
    def octets(self) -> i64:
        """What counts against its threshold."""
        return self.held + self.partial

    def hold(self, octets: i64) -> None:
        """Publishes are held."""
        self.held += octets
        self._shares.add_held(octets)
        self._shares.judge(self)

    def release(self, octets: i64) -> None:
        """Held publishes were passed on or dropped."""
        assert octets <= self.held, "released twice"
        self.held -= octets
        self._shares.add_held(-octets)
        self._shares.judge(self)

    def hold_quietly(self, octets: i64) -> None:
        """Publishes are held whose connection must be read all the same: a transaction's."""
        self._quiet += octets
        self._shares.add_held(octets)

    def release_quietly(self, octets: i64) -> None:
        """Take back `hold_quietly`."""
        assert octets <= self._quiet, "released twice"
        self._quiet -= octets
        self._shares.add_held(-octets)

    def parsed(self, partial: i64, missing: i64) -> None:
        """A chunk was read: so much of it is not whole, and so much is to come."""
        self.missing = missing
        if partial != self.partial:
            self._shares.add_partial(partial - self.partial)
            self.partial = partial
        if partial > 0 or self.full:
            self._shares.judge(self)

    def close(self) -> None:
        """The connection is gone, and what was held for it."""
        if self._closed:
            return
        self._closed = True
        self._shares.add_held(-self.held - self._quiet)
        self._shares.add_partial(-self.partial)
        self.held = 0
        self._quiet = 0
        self.partial = 0
        self.missing = 0
        self._shares.closed(self)

    def set_full(self, full: bool) -> None:
        """Stop or go on reading."""
        self.full = full
        self._reader.may_read(not full)


@final
class Shares:
    """All connections' shares.

    Attributes:
        held: octets of whole publishes, for all.
        partial: octets of unfinished ones, for all.
        count: connections.
    """

    def __init__(self, limits: FlowLimits) -> None:
        self.held: i64 = 0
        self.partial: i64 = 0
        self.count = 0
        self._limits = limits
        self._unread: dict[Share, None] = {}

    @property
    def unread_count(self) -> int:
        """How many sockets are not read."""
        return len(self._unread)

    def open(self, reader: Reader) -> Share:
        """Give a connection its share."""
        self.count += 1
        return Share(self, reader)

    def closed(self, share: Share) -> None:
        """Forget a share that holds nothing any more."""
        self.count -= 1
        self._unread.pop(share, None)
        self._resume()

    def has_room(self, octets: i64) -> bool:
        """Return whether so many octets more may be held."""
        return self.held + self.partial + octets <= self._bound()

    def add_held(self, octets: i64) -> None:
        """Count what a share holds."""
        self.held += octets
        assert self.held >= 0, "more released than held"

    def add_partial(self, octets: i64) -> None:
        """Count what a share holds."""
        self.partial += octets
        assert self.partial >= 0, "more released than held"

    def judge(self, share: Share) -> None:
        """Stop reading a connection that has its share, or go on at half of it."""
        threshold = self._threshold()
        if not share.full:
            if share.octets > threshold:
                self._unread[share] = None
                share.set_full(True)
        elif share.octets <= threshold // 2:
            del self._unread[share]
            share.set_full(False)
            self._resume()

    def _resume(self) -> None:
        for share in list(self._unread):
            if share.octets <= self._threshold() // 2:
                del self._unread[share]
                share.set_full(False)

    def _bound(self) -> i64:
        return self._limits.scaled(self._limits.node_octets) // HELD_PART

    def _threshold(self) -> i64:
        limits = self._limits
        free = self._bound() - self.held - self.partial
        return max(min(limits.scaled(limits.held_octets), free), FREE_OCTETS)
