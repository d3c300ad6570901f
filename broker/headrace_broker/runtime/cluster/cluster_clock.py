"""Clock skew between nodes, measured by the round trips of reports, and warnings."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from headrace_broker.model.limits import CLOCK_ROUND_MS_MAX, CLOCK_SETTLE_MS, CLOCK_SKEW_MS_MAX
from headrace_broker.model.status import ClockStatus
from headrace_broker.runtime.cluster.steady_clock import ALONE, ClockReading, SteadyClock
from headrace_broker.runtime.contract.payload import Payload

log = logging.getLogger("headrace.alarm")


class WireReading(Payload):
    """Travels with alarm reports.

    The reading that a node got last from another goes back to that, so that both know a round trip,
    and by it how far their clocks are apart.
    """

    wall_ms: int  # Unix time by the sender's wall clock, in ms
    queue_ms: int  # Unix time by which its queues go, in ms
    age_ms: int  # for how long it has kept that
    sent_us: int  # when it was sent, in us of a clock of the sender's
    echo_us: int = 0  # `sent_us` of the receiver's last reading, 0 without one
    held_us: int = 0  # how long ago the sender got that


class ClusterClock:
    """Measures the clocks of the other nodes for this one's `SteadyClock`.

    Nothing here stops anybody: a clock that is wrong is a warning.
    """

    def __init__(self, clock: SteadyClock, node: int, names: Mapping[int, str]) -> None:
        self._clock = clock  # of this node
        self._node = node  # its id
        self._names = names  # of all nodes by id; they may change
        self._heard: dict[int, tuple[int, int]] = {}  # a node's `sent_us`, and when it came
        self._owed: set[int] = set()  # nodes that have not had an echo since their link came up
        self._warned: dict[int, str] = {}

    @property
    def warnings(self) -> Mapping[int, str]:
        """Clock warnings by node id, as of the last `look`."""
        return self._warned

    def peer_up(self, peer: int) -> None:
        """Drop measurements of an earlier link: they are of no use for a round trip."""
        self._heard.pop(peer, None)
        self._owed.add(peer)

    def reading(self, peer: int) -> WireReading:
        """Return what a node is told with the next report."""
        now_us = int(self._clock.boottime_us())
        sent_us, came_us = self._heard.get(peer, (0, 0))
        if sent_us:
            self._owed.discard(peer)
        return WireReading(
            wall_ms=max(int(self._clock.unix_ms()), 0),
            queue_ms=max(int(self._clock.queue_ms()), 0),
            age_ms=int(self._clock.age_ms()),
            sent_us=now_us,
            echo_us=sent_us,
            held_us=now_us - came_us if sent_us else 0,
        )

    def receive(self, peer: int, reading: WireReading) -> bool:
        """Take another node's reading; return whether it should have a report at once.

        A new link is measured by that within two round trips: before a leader is elected, mostly.
        """
        now_us = int(self._clock.boottime_us())
        self._heard[peer] = (reading.sent_us, now_us)
        if reading.echo_us:
            round_us = now_us - reading.echo_us - reading.held_us
            if 0 <= round_us <= CLOCK_ROUND_MS_MAX * 1000:
                half_ms = round_us // 2000
                boot_ms = now_us // 1000
                self._clock.receive(
                    peer,
                    ClockReading(
                        reading.wall_ms + half_ms - boot_ms,
                        half_ms + 1,
                        reading.queue_ms + half_ms - boot_ms,
                        reading.age_ms >= CLOCK_SETTLE_MS,
                        boot_ms,
                    ),
                )
        return peer in self._owed

    def status(self, node: int) -> ClockStatus | None:
        """Return how a node's clocks stand, None where that is not known."""
        which = ALONE if node == self._node else node
        skew = self._clock.skew_ms(which)
        lead = self._clock.lead_ms(which)
        if skew is None or lead is None:
            return None
        return ClockStatus(int(skew[0]), int(skew[1]), int(lead), self._warned.get(node, ""))

    def poll(self) -> bool:
        """Check all clocks, and log new warnings; return whether any is wrong."""
        self._clock.members = len(self._names)
        self._clock.queue_ms()  # which looks at the wall clock
        before = list(self._warned)
        for node, name in list(self._names.items()):
            status = self.status(node)
            if status is None:
                self._end(node, f"the clock of node {name} is not heard any more")
                continue
            reason = self._reason(name, status, node in self._warned)
            if not reason:
                self._end(node, f"the clock of node {name} is right again, and so are its queues")
                continue
            if node not in self._warned:
                log.warning("%s", reason)
            self._warned[node] = reason
        for node in [each for each in self._warned if each not in self._names]:
            del self._warned[node]
        return list(self._warned) != before

    def _end(self, node: int, text: str) -> None:
        if self._warned.pop(node, None) is not None:
            log.warning("%s", text)

    def _reason(self, name: str, status: ClockStatus, warned: bool) -> str:
        """Return the fault of a clock, "" for none; a warning ends at half of its threshold."""
        most = CLOCK_SKEW_MS_MAX // 2 if warned else CLOCK_SKEW_MS_MAX
        if abs(status.skew_ms) > most + status.bound_ms:
            return (
                f"the clock of node {name} is {_apart(status.skew_ms)} the cluster's clocks:"
                " see to its NTP; queues go on by the time that passes"
            )
        if abs(status.lead_ms) > most + status.bound_ms:
            return (
                f"the time of the queues that node {name} leads is {_apart(status.lead_ms)} the"
                " clocks, because these were set: it makes that up a little in every second"
            )
        return ""


def _apart(ms: int) -> str:
    return f"{abs(ms) / 1000:.1f} s {'ahead of' if ms > 0 else 'behind'}"
