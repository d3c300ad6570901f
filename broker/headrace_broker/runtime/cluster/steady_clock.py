"""The Unix time by which a node's queues go: it moves with the time that passes, and never jumps.

See decision 0022. A wall clock may be set; what is due in a queue must not become due by that.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr
from typing_extensions import override

from headrace_broker.model.limits import (
    ALARM_LEASE_MS,
    CLOCK_LOOK_MS,
    CLOCK_NOISE_MS,
    CLOCK_SETTLE_MS,
    CLOCK_SLEW_PARTS,
    CLOCK_SLEW_SPAN_MS,
    CLOCK_WITNESS_MS,
)
from headrace_broker.runtime.contract.clock import Clock

ALONE: Final = 0  # nodes have ids from 1 on


@final
class ClockReading:
    """Readings of another node's clock. Offsets are Unix time less this node's boottime."""

    def __init__(
        self, offset_ms: i64, bound_ms: i64, queue_offset_ms: i64, settled: bool, heard_ms: i64
    ) -> None:
        self.offset_ms = offset_ms  # of its wall clock
        self.bound_ms = bound_ms  # by how much that may be wrong: half of the round trip
        self.queue_offset_ms = queue_offset_ms  # of the time by which its queues go
        self.settled = settled  # it has kept that time for CLOCK_SETTLE_MS
        self.heard_ms = heard_ms  # boottime of this node


@mypyc_attr(allow_interpreted_subclasses=True)
class SteadyClock(Clock):
    """Moves by the boottime clock, and towards the median of the cluster's wall clocks.

    Of each second it makes up a part of CLOCK_SLEW_PARTS of what it is ahead or behind, as long as
    most nodes are heard: one wall clock alone could be wrong, and a node that was cut off may lead
    as soon as it is back. It is set in three cases only. In a young process, when another node is
    heard for the first time, whose queues have a time already; and forward, as far as both the wall
    clocks and the log of a queue say that it is later. In any, to the time of the queues of most
    nodes: then this machine stood still with all its clocks, or was cut off.
    """

    def __init__(self) -> None:
        boot = self.boottime_us() // 1000
        self._began_ms: i64 = boot
        self._looked_ms: i64 = boot
        self._own_ms: i64 = self.unix_ms() - boot  # the wall clock's offset from boottime
        self._offset_ms: i64 = self._own_ms  # of what this clock shows
        self._witness_ms: i64 = 0
        self._peers: dict[int, ClockReading] = {}
        self._met: set[int] = set()  # nodes that this process has heard, now or before
        self.members: int = 0  # nodes of the cluster, this one included; 0 while not known

    @override
    def queue_ms(self) -> i64:
        """Return the Unix time by which queues go."""
        return self.queue_ms_at(self.boottime_us() // 1000)

    @override
    def queue_ms_at(self, boot_ms: i64) -> i64:
        self._look(boot_ms)
        return boot_ms + self._offset_ms

    @override
    def witness(self, stamp_ms: i64) -> None:
        self._witness_ms = max(self._witness_ms, stamp_ms)

    def age_ms(self) -> i64:
        """Return for how long this clock has gone."""
        return self.boottime_us() // 1000 - self._began_ms

    def receive(self, node: int, reading: ClockReading) -> None:
        """Take what another node's clocks show."""
        boot = self.boottime_us() // 1000
        self._look(boot)
        met = node in self._met
        self._met.add(node)
        self._peers[node] = reading
        if not met and boot - self._began_ms < CLOCK_SETTLE_MS:
            self._offset_ms = self._agreed_ms()
        self._follow_most()

    def skew_ms(self, node: int) -> tuple[i64, i64] | None:
        """Return by how many ms a clock is ahead of the median, and the bound on that; or None."""
        self._look(self.boottime_us() // 1000)
        median, bound = self._median()
        if node == ALONE:
            return self._own_ms - median, bound
        peer = self._peers.get(node)
        return None if peer is None else (peer.offset_ms - median, max(bound, peer.bound_ms))

    def lead_ms(self, node: int) -> i64 | None:
        """Return how far the time of a node's queues is ahead of the median of the wall clocks."""
        self._look(self.boottime_us() // 1000)
        if node == ALONE:
            return self._offset_ms - self._target_ms()
        median, _ = self._median()
        peer = self._peers.get(node)
        return None if peer is None else peer.queue_offset_ms - median

    def _look(self, boot: i64) -> None:
        """See where the wall clocks are, and come nearer to them; CLOCK_LOOK_MS after the last."""
        elapsed = min(boot - self._looked_ms, CLOCK_SLEW_SPAN_MS)
        if elapsed < CLOCK_LOOK_MS:
            return
        self._looked_ms = boot
        self._own_ms = self.unix_ms() - boot
        for node, peer in list(self._peers.items()):
            if boot - peer.heard_ms > ALARM_LEASE_MS:
                del self._peers[node]
        target = self._target_ms()
        most = 0 if self._hears_too_few() else elapsed // CLOCK_SLEW_PARTS
        self._offset_ms += max(min(target - self._offset_ms, most), -most)
        self._follow_most()
        if boot - self._began_ms < CLOCK_WITNESS_MS:
            self._offset_ms = max(self._offset_ms, min(target, self._witness_ms - boot))

    def _hears_too_few(self) -> bool:
        return 2 * (len(self._peers) + 1) <= self.members

    def _target_ms(self) -> i64:
        """Return the median's offset, or the own one where that differs by no more than noise."""
        median, bound = self._median()
        apart = median - self._own_ms
        noise = CLOCK_NOISE_MS + bound
        return self._own_ms if -noise <= apart <= noise else median

    def _median(self) -> tuple[i64, i64]:
        """Return the median of the wall clocks' offsets and its bound.

        Of an even number it is the lower, which lets messages live: which of two clocks is wrong
        cannot be known.
        """
        clocks: list[tuple[int, int]] = [(int(self._own_ms), 0)]
        clocks += [(int(each.offset_ms), int(each.bound_ms)) for each in self._peers.values()]
        clocks.sort()
        return clocks[(len(clocks) - 1) // 2]

    def _follow_most(self) -> None:
        """Set this clock to what the queues of most nodes have reached, where it is apart from it.

        Of an even number none is the middle one, and both middle ones have to agree. Young
        processes do not count: they may have begun with a wrong clock, and not heard others yet.
        """
        own = int(self._offset_ms)
        settled = [int(each.queue_offset_ms) for each in self._peers.values() if each.settled]
        least = _middle([*settled, own])
        most = -_middle([-each for each in (*settled, own)])
        if least > own + CLOCK_NOISE_MS:
            self._offset_ms = least
        elif most < own - CLOCK_NOISE_MS:
            self._offset_ms = most

    def _agreed_ms(self) -> i64:
        """Return the offset by which the queues of the others go, or the wall clocks' median."""
        settled = [int(each.queue_offset_ms) for each in self._peers.values() if each.settled]
        return _middle(settled) if settled else self._target_ms()


def _middle(values: list[int]) -> int:
    """Return the median, of an even number the lower of both."""
    return sorted(values)[(len(values) - 1) // 2]
