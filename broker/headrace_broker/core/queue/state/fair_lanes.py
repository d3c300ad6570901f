"""Messages that wait by the value of a header, so that none has to wait for all of another's.

Each value with waiting messages has a lane of its own, per priority, in which batches stay batches;
the lanes of a priority take turns (see `ring`). Messages without the header wait in the
priority's plain lane, and so do those that came before there was a fairness key: while others wait
beside them, that lane takes turns as one value.

A value that comes when FAIRNESS_VALUES_MAX have lanes shares one of FAIRNESS_SHARED_LANES with
others, by its hash. Each value's messages wait in one lane only, so they stay in their order.
"""

from __future__ import annotations

import hashlib
import zlib
from heapq import heapify, heappop, heappush, nsmallest
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.core.queue.state.lane import Lane
from headrace_broker.core.queue.state.live_entries import LiveEntries
from headrace_broker.core.queue.state.page import Page
from headrace_broker.core.queue.state.ring import Ring
from headrace_broker.model.limits import (
    FAIRNESS_SHARED_LANES,
    FAIRNESS_VALUE_BYTES_MAX,
    FAIRNESS_VALUES_MAX,
)

KEY_VALUE: Final = b"F"  # first byte of the key of a message that takes turns by its value
KEY_SHARED: Final = b"H"  # of one whose value has its turn together with others
_VALUE: Final = 0x46
_SHARED: Final = 0x48
_DIGEST_BYTES: Final = 16
_SPARE_LANES: Final = 16  # emptied lanes kept for the next values
_SLACK: Final = 64  # outdated places in a heap before it is made anew
_LOOK_FIRST: Final = 8  # messages looked at in a lane before more are


@final
class FairValue:
    """Ready messages of one value."""

    def __init__(self, value: bytes, shared: bool) -> None:
        # of the header, see `property_reader.header_key` (a longer one is cut, and a digest stands
        # for the rest); b"" for messages without it; for values that share a lane the lane's number
        self.value = value
        self.shared = shared  # it stands for several values
        self.waiting: i64 = 0  # messages
        self.byte_count: i64 = 0  # of their bodies


def fair_key(value: bytes) -> bytes:
    """Return the key of messages whose header has this value."""
    if len(value) > FAIRNESS_VALUE_BYTES_MAX:
        digest = hashlib.blake2b(value, digest_size=_DIGEST_BYTES).digest()
        value = value[: FAIRNESS_VALUE_BYTES_MAX - _DIGEST_BYTES] + digest
    return KEY_VALUE + value


def is_fair(key: bytes) -> bool:
    """Return whether a key is one by which messages take turns."""
    return len(key) > 0 and (key[0] == _VALUE or key[0] == _SHARED)


def _shared_key(key: bytes) -> bytes:
    return KEY_SHARED + (zlib.crc32(key) % FAIRNESS_SHARED_LANES).to_bytes(2, "big")


@final
class FairLanes:
    """The lanes of all values, by priority, and the turns that they take."""

    def __init__(self, entries: LiveEntries) -> None:
        self.count: i64 = 0  # lanes of values, without the plain ones that take turns with them
        self._entries = entries
        self._shared: i64 = 0  # those of `count` that have several values
        self._rings: list[Ring | None] = []  # by priority, up to the highest that was used
        self._expiring: list[tuple[int, int, bytes]] = []  # heap of (time, priority, key)
        self._spare: list[Lane] = []

    # In

    def lane(self, key: bytes, priority: i64, plain: Lane | None) -> Lane:
        """Return the lane for messages with a fair key, for adding some there."""
        ring = self._ring(priority)
        lane = ring.lanes.get(key)
        if lane is not None:
            return lane
        if key[0] == _VALUE:
            full = self.count - self._shared >= FAIRNESS_VALUES_MAX
            if full or self._shared > 0:
                shared_key = _shared_key(key)
                lane = ring.lanes.get(shared_key)
                if lane is not None:
                    return lane
                if full:
                    key = shared_key
        if plain is not None and plain.count > 0 and ring.first is None:
            self._join(ring, plain)
            ring.grown(plain)  # that was not noted while it took no turns
        lane = self._new_lane(priority, key)
        self._join(ring, lane)
        return lane

    def _join(self, ring: Ring, lane: Lane) -> None:
        """Let a lane take turns."""
        ring.join(lane)
        if lane.key:
            self.count += 1
            if lane.key[0] == _SHARED:
                self._shared += 1

    def restore(self, lane: Lane) -> None:
        """Add a lane of a snapshot to the turns; LookupError for an empty or second one."""
        ring = self._ring(lane.priority)
        if lane.count == 0 or lane.key in ring.lanes or (lane.key and not is_fair(lane.key)):
            raise LookupError(f"lane {lane.key!r} of priority {lane.priority}")
        self._join(ring, lane)
        if lane.key:
            self._list(lane)

    def check(self, plain: list[Lane]) -> None:
        """Check that plain lanes take turns where values do; LookupError if they do not."""
        for lane in plain:
            ring = self._ring_of(lane.priority)
            if ring is None or lane.count == 0:
                continue
            if (lane.behind is None) != (ring.first is None) or len(ring.lanes) == 1:
                raise LookupError(f"turns of priority {lane.priority}")

    def _ring(self, priority: i64) -> Ring:
        ring = self._ring_of(priority)
        if ring is None:
            ring = Ring()
            while len(self._rings) <= priority:
                self._rings.append(None)
            self._rings[priority] = ring
        return ring

    def _ring_of(self, priority: i64) -> Ring | None:
        return self._rings[priority] if priority < len(self._rings) else None

    def _new_lane(self, priority: i64, key: bytes) -> Lane:
        if not self._spare:
            return Lane(priority, key, self._entries)
        lane = self._spare.pop()
        lane.priority = priority
        lane.key = key
        return lane

    def grown(self, lane: Lane) -> None:
        """Note that messages came to a lane, a plain one perhaps that takes no turns yet."""
        ring = self._ring_of(lane.priority)
        if ring is None or ring.first is None:
            return
        if lane.behind is None:
            ring.join(lane)
        ring.grown(lane)
        if lane.key:
            self._list(lane)

    # Out

    def first(self, priority: i64) -> Lane | None:
        """Return the lane whose turn is next, None where no values wait."""
        ring = self._ring_of(priority)
        return None if ring is None else ring.first

    def longest(self, priority: i64, by_bytes: bool) -> Lane | None:
        """Return the lane with most messages, or bytes of bodies; None where no values wait."""
        ring = self._ring_of(priority)
        return None if ring is None or ring.first is None else ring.longest(by_bytes)

    def served(self, lane: Lane) -> None:
        """Note that the lane whose turn it was gave a message."""
        if lane.count == 0:
            self.left(lane)
        else:
            ring = self._ring_of(lane.priority)
            assert ring is not None, "it had its turn"
            ring.turn()

    def left(self, lane: Lane) -> None:
        """Note that messages left a lane in another way than by its turn."""
        if lane.count > 0 or lane.behind is None:
            return
        ring = self._ring_of(lane.priority)
        assert ring is not None, "it takes turns"
        ring.leave(lane)
        if lane.key:
            self._forget(lane)
        if len(ring.lanes) == 1 and ring.first is not None and not ring.first.key:
            ring.leave(ring.first)  # it is the only one in turn

    def _forget(self, lane: Lane) -> None:
        self.count -= 1
        if lane.key[0] == _SHARED:
            self._shared -= 1
        lane.expires_ms = 0
        lane.listed_ms = 0
        if len(self._spare) < _SPARE_LANES:
            self._spare.append(lane)

    def clear(self, into: list[Page]) -> list[Acquired]:
        """Move the pages of all values to the end of `into`, and return the single messages."""
        loose: list[Acquired] = []
        for lane in self.of_values():
            loose.extend(lane.clear(into))
            self.left(lane)
        return loose

    # Time

    def _list(self, lane: Lane) -> None:
        expires = lane.expires_ms
        if expires > 0 and (lane.listed_ms == 0 or expires < lane.listed_ms):
            lane.listed_ms = expires
            heappush(self._expiring, (int(expires), int(lane.priority), lane.key))
            if len(self._expiring) > 4 * self.count + _SLACK:
                self._expiring = [place for place in self._expiring if self._listed(place)]
                heapify(self._expiring)

    def _listed(self, place: tuple[int, int, bytes]) -> Lane | None:
        """Return the lane whose place this is; None for one that is outdated."""
        ring = self._ring_of(place[1])
        lane = None if ring is None else ring.lanes.get(place[2])
        return lane if lane is not None and lane.listed_ms == place[0] else None

    def expires_ms(self) -> i64:
        """Return before when nothing expires in a lane of a value, 0 when nothing does."""
        expiring = self._expiring
        while expiring and self._listed(expiring[0]) is None:
            heappop(expiring)
        return expiring[0][0] if expiring else 0

    def pop_due(self, now_ms: i64) -> list[Lane]:
        """Return the lanes in which something may have expired; `looked_at` takes them back."""
        found: list[Lane] = []
        expires = self.expires_ms()
        while 0 < expires <= now_ms:
            lane = self._listed(self._expiring[0])
            heappop(self._expiring)
            if lane is not None:
                lane.listed_ms = 0
                found.append(lane)
            expires = self.expires_ms()
        found.sort(key=_place)
        return found

    def looked_at(self, lanes: list[Lane]) -> None:
        """Note that expired messages were taken out of lanes, or some of them."""
        for lane in lanes:
            if lane.count == 0:
                self.left(lane)
            elif lane.key:
                self._list(lane)

    # Looking

    def in_order(self) -> list[Lane]:
        """Return all lanes that take turns, by priority from the lowest, and by their turns."""
        found: list[Lane] = []
        for ring in self._rings:
            if ring is not None and ring.first is not None:
                found.extend(ring.in_order())
        return found

    def of_values(self) -> list[Lane]:
        """Return the lanes of values, in the same order."""
        return [lane for lane in self.in_order() if lane.key]


def how_much_waits(lanes: list[Lane], limit: i64) -> list[FairValue]:
    """Return how much waits of up to `limit` values, of all priorities together, most first."""
    found: dict[bytes, FairValue] = {}
    for lane in lanes:
        if lane.count == 0:
            continue
        value = found.get(lane.key)
        if value is None:
            value = FairValue(lane.key[1:], lane.key.startswith(KEY_SHARED))
            found[lane.key] = value
        value.waiting += lane.count
        value.byte_count += lane.byte_count
    return nsmallest(int(limit), found.values(), key=_most_first)


def _most_first(value: FairValue) -> tuple[int, bytes]:
    return (-int(value.waiting), value.value)


def look_through(lanes: list[Lane], after_id: i64, limit: i64) -> list[Acquired]:
    """Return up to `limit` messages of many lanes with ids above one, by their ids.

    A lane is only looked into where its next message may be among them.
    """
    found: list[Acquired] = []
    heads: list[tuple[int, int]] = []  # heap of (an id below which it has none, lane)
    parts: list[list[Acquired]] = []  # what was looked up of each lane, the next one last
    wanted: list[int] = []  # how many to look up the next time
    for lane in lanes:
        if lane.count > 0:
            heads.append((int(max(lane.first_id(), after_id + 1)), len(parts)))
            parts.append([])
            wanted.append(_LOOK_FIRST)
    known = [lane for lane in lanes if lane.count > 0]
    heapify(heads)
    while heads and len(found) < limit:
        least, at = heappop(heads)
        part = parts[at]
        if part:
            found.append(part.pop())
            least += 1
        if not part:
            known[at].browse(least - 1, min(wanted[at], limit), part)
            part.reverse()
            wanted[at] *= 2
        if part:
            heappush(heads, (int(part[-1].message_id), at))
    return found


def _place(lane: Lane) -> tuple[int, bytes]:
    return (int(lane.priority), lane.key)
