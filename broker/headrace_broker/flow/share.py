"""Memory that a node holds for publishing connections, and the sockets that it reads.

Each connection may hold what is still free (its threshold), at most `held_bytes`. So no more is
held than the bound, however many connections there are, and those that want more than their share
get equal ones. Such a threshold needs no list of who wants how much.

A publish that is larger than its connection's threshold passes a turnstile: it goes on when all
that is still to come of it has room beside others that do, and then it comes in as a whole. They
enter one after the other, so each gets in some time, and none waits in the middle for room that is
taken by another one that waits. One for which there is never room beside others is *huge*: one of
these at a time comes in whatever the large ones take, and keeps none of them waiting.

Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches".
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.gate import Gate, GateScheduler
from headrace_broker.model.limits import LARGE_STALLED_LOOKS

SMALL_PART: Final = 4  # a quarter of the node's bound is for what connections hold
LARGE_PART: Final = 2  # a half for large publishes on their way in
FREE_BYTES: Final = 4096  # held for any connection, so that frames that are not publishes pass
READ_BYTES_MIN: Final = 512  # in one read, or reading itself would be the load


@mypyc_attr(allow_interpreted_subclasses=True)
class Reader:
    """Reader of a connection's socket."""

    @abstractmethod
    def may_read(self, reading: bool) -> None:
        """Read the socket, or leave it unread; called at changes only, and must not block."""

    @abstractmethod
    def stalled(self) -> None:
        """Close the socket: it stands in others' way with a publish of which nothing comes."""


@final
class Share:
    """Bytes held for one connection."""

    def __init__(self, shares: Shares, reader: Reader) -> None:
        self.held: i64 = 0  # bytes of whole publishes
        self.partial: i64 = 0  # bytes of frames and contents that have not arrived as a whole
        self.missing: i64 = 0  # bytes of those still to come, as far as they are announced
        self.full = False  # its socket must not be read
        self.slot: i64 = 0  # bytes for a large publish in the turnstile, 0 for none
        self.huge = False  # more than all large ones together may have: reckoned apart from them
        self._still: i64 = 0  # looks at which nothing had come
        self._seen: i64 = 0  # bytes of its publish at the last of them
        self._quiet: i64 = 0
        self._shares = shares
        self._reader: Reader | None = reader  # None once it is closed
        self._closed = False

    @property
    def byte_count(self) -> i64:
        """Bytes that count against its threshold."""
        return self.held + self.partial

    def hold(self, byte_count: i64) -> None:
        """Publishes are held; `parsed` follows at the end of the chunk they came in."""
        self.held += byte_count
        self._shares.add_held(byte_count, self.slot == 0)

    def release(self, byte_count: i64) -> None:
        """Held publishes were passed on or dropped."""
        assert byte_count <= self.held, "released twice"
        self.held -= byte_count
        self._shares.add_held(-byte_count, self.slot == 0)
        self._shares.judge(self)

    def hold_quietly(self, byte_count: i64) -> None:
        """Count buffered publishes of a connection that must still be read: a transaction's."""
        self._quiet += byte_count
        self._shares.add_held(byte_count, True)

    def release_quietly(self, byte_count: i64) -> None:
        """Take back `hold_quietly`."""
        assert byte_count <= self._quiet, "released twice"
        self._quiet -= byte_count
        self._shares.add_held(-byte_count, True)

    def parsed(self, partial: i64, missing: i64) -> None:
        """A chunk was read: so much of it is not whole, and so much is to come."""
        self.missing = missing
        if partial != self.partial:
            self._shares.add_partial(partial - self.partial, self.slot == 0)
            self.partial = partial
        if partial > 0 or self.held > 0 or self.slot > 0:
            self._shares.judge(self)

    def read_bytes(self, bytes_max: i64) -> i64:
        """Return how many bytes the next read may bring, from READ_BYTES_MIN to `bytes_max`."""
        left = self._shares.left(self)
        return min(max(left, READ_BYTES_MIN), bytes_max)

    def close(self) -> None:
        """Drop a closed connection and its share."""
        if not self._closed:
            self._closed = True
            self._reader = None
            self._shares.close(self, self._quiet)
            self.held = 0
            self.partial = 0
            self.missing = 0
            self._quiet = 0

    def is_stalled(self, waited_for: bool) -> bool:
        """Check whether any of its large publish has come while others wait for it."""
        if waited_for and not self.full and self.partial == self._seen:
            self._still += 1
        else:
            self._still = 0
        self._seen = self.partial
        return self._still >= LARGE_STALLED_LOOKS

    def stall(self) -> None:
        """Give up on it."""
        self._still = 0
        if self._reader is not None:
            self._reader.stalled()

    def set_full(self, full: bool) -> None:
        """Stop or resume reading."""
        if full != self.full and self._reader is not None:
            self.full = full
            self._reader.may_read(not full)


@final
class Shares:
    """All connections' shares."""

    def __init__(self, limits: FlowLimits, gate: Gate, bell: GateScheduler | None) -> None:
        self.held: i64 = 0  # bytes of whole publishes, for all
        self.partial: i64 = 0  # bytes of unfinished ones, for all
        self.count: i64 = 0  # connections
        self._limits = limits
        self._gate = gate  # the node's intake; it rings when `look` is to be called
        self._bell = bell
        self.due = False  # `look` is to be called
        self._small: i64 = 0  # bytes of all but those in the turnstile
        self._large: i64 = 0  # bytes reserved in the turnstile, but for the huge one
        self._huge: Share | None = None  # within
        self._unread: dict[Share, None] = {}  # full, and in neither of the following
        self._entering: dict[Share, None] = {}  # before the turnstile, in the order they came
        self._inside: dict[Share, None] = {}  # within

    @property
    def unread_count(self) -> int:
        """Number of sockets that are not read."""
        waiting = sum(1 for share in self._inside if share.full)
        return len(self._unread) + len(self._entering) + waiting

    @property
    def entering_count(self) -> int:
        """Number of connections with a large publish that waits for others."""
        return len(self._entering)

    @property
    def inside_count(self) -> int:
        """Number of connections with a large publish inside."""
        return len(self._inside)

    def open(self, reader: Reader) -> Share:
        """Give a connection its share."""
        self.count += 1
        return Share(self, reader)

    def close(self, share: Share, quiet: i64) -> None:
        """Forget a share and all that it holds, `quiet` bytes among it."""
        self.count -= 1
        self.held -= share.held + quiet
        self.partial -= share.partial
        self._small -= quiet
        if share.slot == 0:
            self._small -= share.byte_count
        self._give_back(share)
        self._unread.pop(share, None)
        self._entering.pop(share, None)
        self._inside.pop(share, None)
        self._freed()

    def has_room(self, byte_count: i64) -> bool:
        """Return whether so many bytes more may be held."""
        return self._small + byte_count <= self._small_max()

    def add_held(self, byte_count: i64, small: bool) -> None:
        """Count what a share holds, outside of the turnstile or within."""
        self.held += byte_count
        if small:
            self._small += byte_count
        if byte_count < 0:
            self._freed()

    def add_partial(self, byte_count: i64, small: bool) -> None:
        """Count what a share holds, outside of the turnstile or within."""
        self.partial += byte_count
        if small:
            self._small += byte_count
        if byte_count < 0:
            self._freed()

    def left(self, share: Share) -> i64:
        """Return how much more a share may hold now."""
        most = share.slot if share.slot > 0 else self._threshold()
        return most - share.byte_count

    def judge(self, share: Share) -> None:
        """Stop reading a connection that has its share, or resume at half of it."""
        if share.slot > 0:
            self._judge_inside(share)
        elif not share.full:
            if share.byte_count > self._threshold():
                self._stop(share)
        elif share.byte_count <= self._threshold() // 2:
            self._resume(share)
        elif share in self._unread and share.held == 0 and share.missing > 0:
            del self._unread[share]
            self._entering[share] = None
            self._freed()

    def poll(self) -> None:
        """Resume those for whom there is room now; also called when limits have changed."""
        self.due = False
        for share in list(self._inside):
            if share.full:
                self._judge_inside(share)
        for share in list(self._entering):
            if share.byte_count > self._threshold() // 2 and not self._enter(share):
                if not self._is_huge(share):
                    break
                continue
            self._resume(share)
        for share in list(self._unread):
            if share.byte_count <= self._threshold() // 2:
                self._resume(share)

    def tick(self) -> None:
        """Close those who came in through the turnstile and stand still; called ten times a second.

        Otherwise a few clients that begin large publishes and send no more keep out all others.
        """
        waited_for = len(self._entering) > 0
        for share in list(self._inside):
            if share.is_stalled(waited_for):
                share.stall()

    # The turnstile

    def _stop(self, share: Share) -> None:
        if share.held == 0 and share.missing > 0:
            first = all(self._is_huge(other) for other in self._entering)
            if first and self._enter(share):
                return
            self._entering[share] = None
        else:
            self._unread[share] = None
        share.set_full(True)

    def _resume(self, share: Share) -> None:
        self._unread.pop(share, None)
        self._entering.pop(share, None)
        share.set_full(False)

    def _enter(self, share: Share) -> bool:
        """Admit a large publish as a whole; return False while it has no slot."""
        need = share.byte_count + share.missing + FREE_BYTES
        if self._is_huge(share):
            if self._huge is not None:
                return False
            self._huge = share
            share.huge = True
        elif self._large > 0 and self._large + need > self._large_max():
            return False
        else:
            self._large += need
        self._small -= share.byte_count
        share.slot = need
        self._inside[share] = None
        return True

    def _judge_inside(self, share: Share) -> None:
        """Let one out that has become small, and have one wait that wants more than it announced.

        Other channels of its connection may have begun large publishes since. The first within
        always goes on, so that somebody does; the others wait for those before them.
        """
        byte_count = share.byte_count
        if byte_count <= self._threshold() // 2:
            self._leave(share)
            return
        need = byte_count + share.missing + FREE_BYTES
        if share.huge:
            share.slot = need
            share.set_full(share.missing == 0)
            return
        if need > share.slot:
            first = next(each for each in self._inside if not each.huge) is share
            if not first and self._large + need - share.slot > self._large_max():
                share.set_full(True)
                return
        elif need < share.slot:
            self._freed()
        self._large += need - share.slot
        share.slot = need
        share.set_full(share.missing == 0)

    def _leave(self, share: Share) -> None:
        self._give_back(share)
        self._small += share.byte_count
        del self._inside[share]
        share.set_full(False)
        self._freed()

    def _give_back(self, share: Share) -> None:
        """Free the reservation of a share."""
        if share.huge:
            share.huge = False
            self._huge = None
        else:
            self._large -= share.slot
        share.slot = 0

    def _is_huge(self, share: Share) -> bool:
        """Return whether a publish takes more than large ones together may."""
        return share.byte_count + share.missing + FREE_BYTES > self._large_max()

    # Bounds

    def _freed(self) -> None:
        """Schedule a check of the waiting ones in the next turn, because something became free."""
        if not self.due and (self._unread or self._entering or self._inside):
            self.due = True
            if self._bell is not None:
                self._bell.ring(self._gate)

    def _small_max(self) -> i64:
        return self._limits.scaled(self._limits.node_buffer_bytes) // SMALL_PART

    def _large_max(self) -> i64:
        return self._limits.scaled(self._limits.node_buffer_bytes) // LARGE_PART

    def _free(self) -> i64:
        """Return the bytes that any connection may hold, however many there are."""
        return min(FREE_BYTES, self._small_max() // 2 // max(self.count, 1))

    def _threshold(self) -> i64:
        limits = self._limits
        free = self._free()
        left = self._small_max() - free * self.count - self._small
        return max(min(limits.scaled(limits.connection_buffer_bytes), left), free)
