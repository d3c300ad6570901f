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
from headrace_broker.runtime.clock import Clock

ALONE: Final = 0  # nodes have ids from 1 on


@final
class ClockReading:
    """Readings of another node's clock. Offsets are Unix time less this node's boottime.

    Attributes:
        offset_ms: of its wall clock.
        bound_ms: by how much that may be wrong: half of the round trip.
        queue_offset_ms: of the time by which its queues go.
        settled: it has kept that time for CLOCK_SETTLE_MS.
        heard_ms: boottime of this node.
    """

    def __init__(
        self, offset_ms: i64, bound_ms: i64, queue_offset_ms: i64, settled: bool, heard_ms: i64
    ) -> None:
        self.offset_ms = offset_ms
        self.bound_ms = bound_ms
        self.queue_offset_ms = queue_offset_ms
        self.settled = settled
        self.heard_ms = heard_ms


@mypyc_attr(allow_interpreted_subclasses=True)
class SteadyClock(Clock):
    """Moves by the boottime clock, and towards the median of the cluster's wall clocks.

    Of each second it makes up a part of CLOCK_SLEW_PARTS of what it is ahead or behind. It is set
    in three cases only. In a young process, when another node is heard for the first time, whose
    queues have a time already; and forward, as far as both the wall clocks and the log of a queue
    say that it is later. In any, forward to the time of the queues of most nodes: then this machine
    stood still with all its clocks.
    """

    def __init__(self) -> None:
        boot = self.boottime_us() // 1000
        self._began_ms: i64 = boot
        self._looked_ms: i64 = boot
        self._own_ms: i64 = self.unix_ms() - boot  # the wall clock's offset from boottime
        self._offset_ms: i64 = self._own_ms  # of what this clock shows
        self._witness_ms: i64 = 0
        self._peers: dict[int, ClockReading] = {}

    @override
    def queue_ms(self) -> i64:
        """Return the Unix time by which queues go."""
        boot = self.boottime_us() // 1000
        self._look(boot)
        return boot + self._offset_ms

    @override
    def witness(self, stamp_ms: i64) -> None:
        self._witness_ms = max(self._witness_ms, stamp_ms)

    def age_ms(self) -> i64:
        """Return for how long this clock has gone."""
        return self.boottime_us() // 1000 - self._began_ms

    def take(self, node: int, reading: ClockReading) -> None:
        """Take what another node's clocks show."""
        boot = self.boottime_us() // 1000
        self._look(boot)
        known = node in self._peers
        self._peers[node] = reading
        if not known and boot - self._began_ms < CLOCK_SETTLE_MS:
            self._offset_ms = self._agreed_ms()

    def forget(self, node: int) -> None:
        """Pass over a node that is not heard any more."""
        self._peers.pop(node, None)

    def skew_ms(self, node: int) -> tuple[i64, i64] | None:
        """Return how far a wall clock is from the median, and how far that may be wrong.

        Args:
            node: another node, or ALONE for this one.

        Returns:
            Milliseconds, more than 0 for a clock that is ahead; None where it is not known.
        """
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
        most = elapsed // CLOCK_SLEW_PARTS
        self._offset_ms += max(min(target - self._offset_ms, most), -most)
        common = self._common_ms()
        if common > self._offset_ms + CLOCK_NOISE_MS:
            self._offset_ms = common
        if boot - self._began_ms < CLOCK_WITNESS_MS:
            self._offset_ms = max(self._offset_ms, min(target, self._witness_ms - boot))

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

    def _common_ms(self) -> i64:
        """Return the offset that the queues of most nodes have reached."""
        offsets = [int(each.queue_offset_ms) for each in self._peers.values() if each.settled]
        offsets.append(int(self._offset_ms))
        offsets.sort()
        return offsets[(len(offsets) - 1) // 2]

    def _agreed_ms(self) -> i64:
        """Return the offset by which the queues of the others go, or the wall clocks' median."""
        settled = sorted(
            [int(each.queue_offset_ms) for each in self._peers.values() if each.settled]
        )
        return settled[(len(settled) - 1) // 2] if settled else self._target_ms()
