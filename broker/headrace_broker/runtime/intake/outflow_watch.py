"""Announcements of bounds for queues that fall behind, to other nodes and from them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from headrace_broker.flow.outflow import RATE_MAX, Outflow
from headrace_broker.flow.outflow_claims import OutflowClaims
from headrace_broker.model.limits import TURN_US_BUSY
from headrace_broker.runtime.contract.payload import Payload, encode
from headrace_broker.runtime.contract.recently_applied import RecentlyApplied
from headrace_broker.runtime.intake.queue_gates import QueueGates

if TYPE_CHECKING:
    from headrace_broker.core.queue.machine.queue_machine import QueueMachine
    from headrace_broker.runtime.replica.queue_host import QueueHost

HERE: Final = 0  # this node among its peers
IDLE_LOOKS: Final = 20  # without being busy after which queues are not sampled
BUSY_PERCENT: Final = 80  # of the time the loop computes: more is hardly to be had


class Outflows(Payload, tag="outflows"):
    """Messages a second that a node may let into queues that fall behind.

    It counts for a while; queues that are not named have no bound, or keep the one they have.
    """

    rows: list[int]  # group, messages a second (0: any number), and so on


class Claims(Payload, tag="claims"):
    """The answer: how much weight the publishers have that wait there."""

    rows: list[int]  # group, weight, and so on; 1 where nothing is said


@final
class OutflowWatch:
    """Watch on the queues led here while this node is busy.

    What it says is repeated with each sample and lapses without repetition, so nothing depends
    on a report that is lost, or a leader that is gone.
    """

    def __init__(
        self,
        hosts: dict[int, QueueHost],
        recent: RecentlyApplied,
        gates: QueueGates,
        peers: Collection[int],
        send: Callable[[int, bytes], bool],
        cpu_us: Callable[[], int],
    ) -> None:
        self._cpu_us = cpu_us  # the processor time of the loop's thread, in microseconds
        self._used_us = 0
        self._hosts = hosts  # replicas on this node by queue group
        self._recent = recent.reader()
        self._gates = gates  # of the queues that this node's clients publish to
        self._peers = peers  # the other nodes, as they come and go
        self._send = send  # carries a payload to a node
        self._claims: dict[int, OutflowClaims] = {}  # of queues that have a bound
        self._seen: dict[int, Outflow] = {}  # queues to which something has come lately
        self._last_ids: dict[int, int] = {}  # of queues to which something was applied, at a look
        self._idle = True  # the look before was none
        self._bounds = 0
        self._idle_looks = IDLE_LOOKS  # since the node was busy, IDLE_LOOKS at most

    def poll(self, now_us: i64, elapsed_us: i64, turn_us: i64) -> None:
        """Take a sample, tell the other nodes, and let in here what the time has brought.

        Args:
            now_us: this moment, on the monotonic clock.
            elapsed_us: since the last look.
            turn_us: length of a turn of the loop.
        """
        busy = self._is_busy(elapsed_us, turn_us)
        self._idle_looks = 0 if busy else min(self._idle_looks + 1, IDLE_LOOKS)
        if self._idle_looks < IDLE_LOOKS or self._bounds > 0:
            self._tell(self._look(elapsed_us, turn_us, busy), int(now_us))
        elif not self._idle:
            self._idle = True
            self._seen.clear()
            self._last_ids.clear()
        self._gates.go_on(int(now_us))

    def receive(self, peer: int, rows: list[int], now_us: int) -> None:
        """Apply another node's bounds for queues that it leads, and answer with waiting publishers.

        Args:
            peer: its id.
            rows: a group, messages a second, and so on.
            now_us: this moment, on the monotonic clock.
        """
        self._take(rows, now_us)
        claims = self._gates.claims(rows[::2])
        if claims:
            self._send(peer, encode(Claims(claims)))

    def hear_claims(self, node: int, rows: list[int], now_us: int) -> None:
        """Note waiting publishers of a node for queues led here: a group, a weight, and so on."""
        for at in range(0, len(rows) - 1, 2):
            claims = self._claims.get(rows[at])
            if claims is not None:
                claims.receive(node, rows[at + 1], now_us)

    def _take(self, rows: list[int], now_us: int) -> None:
        for at in range(0, len(rows) - 1, 2):
            self._gates.receive(rows[at], min(rows[at + 1], RATE_MAX), now_us)

    def _is_busy(self, elapsed_us: i64, turn_us: i64) -> bool:
        """Return whether the loop is saturated, or waits for a processor that others have."""
        used_us = self._cpu_us()
        used, self._used_us = used_us - self._used_us, used_us
        return turn_us >= TURN_US_BUSY or used * 100 >= elapsed_us * BUSY_PERCENT

    def _look(self, elapsed_us: i64, turn_us: i64, busy: bool) -> dict[int, int]:
        """Return the bounds that there are, or were until now, by group."""
        before, self._seen = self._seen, {}
        recent = self._recent()
        if self._idle:
            self._idle = False
            recent = []  # these may be long ago
        bounds: dict[int, int] = {}
        for group in {*before, *recent}:
            host = self._hosts.get(group)
            if host is None or not host.serving:
                self._last_ids.pop(group, None)
                continue
            machine = host.machine
            outflow = before.get(group)
            if outflow is not None:
                was = outflow.bound
                self._look_at(outflow, machine, elapsed_us, turn_us, busy)
                if outflow.bound > 0 or was > 0:
                    bounds[group] = int(outflow.bound)
                if not outflow.is_still:
                    self._seen[group] = outflow
            elif self._last_ids.get(group, machine.last_id) != machine.last_id:
                self._seen[group] = Outflow(machine.last_id, machine.ready_count)
            self._last_ids[group] = int(machine.last_id)
        self._bounds = len(bounds)
        return bounds

    def _look_at(
        self, outflow: Outflow, machine: QueueMachine, elapsed_us: i64, turn_us: i64, busy: bool
    ) -> None:
        outflow.poll(
            machine.last_id,
            machine.ready_count,
            machine.unsettled_count,
            machine.consumer_count,
            elapsed_us,
            turn_us,
            busy,
            len(self._peers) + 1,
        )

    def _tell(self, bounds: dict[int, int], now_us: int) -> None:
        """Send each node its part of bounds."""
        claims = {group: self._claims.get(group) or OutflowClaims() for group in bounds}
        self._claims = claims
        if not bounds:
            return
        self.hear_claims(HERE, self._gates.claims(bounds), now_us)
        rows: dict[int, list[int]] = {node: [] for node in (HERE, *self._peers)}
        for group, bound in bounds.items():
            for node, part in claims[group].parts(bound, rows, now_us).items():
                rows[node] += (group, part)
        self._take(rows.pop(HERE), now_us)
        for peer, told in rows.items():
            self._send(peer, encode(Outflows(told)))
