"""Announcements of bounds for queues that are deep, to other nodes and from them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.flow.outflow_claims import OutflowClaims
from headrace_broker.flow.paced_confirms import RATE_MAX, PacedQueues
from headrace_broker.model.limits import TURN_US_BUSY
from headrace_broker.runtime.contract.payload import Payload, encode
from headrace_broker.runtime.intake.queue_gates import QueueGates

HERE: Final = 0  # this node among its peers
BUSY_PERCENT: Final = 80  # of the time the loop computes: more is hardly to be had


class Outflows(Payload, tag="outflows"):
    """Messages a second that a node may let into queues that are deep.

    It counts for a while; queues that are not named have no bound, or keep the one they have.
    """

    rows: list[int]  # group, messages a second (0: any number), and so on


class Claims(Payload, tag="claims"):
    """The answer: how much weight the publishers have that wait there."""

    rows: list[int]  # group, weight, and so on; 1 where nothing is said


@final
class OutflowWatch:
    """Bounds of the queues led here, and of those that publishers of this node wait for.

    What it says is repeated with each sample and lapses without repetition, so nothing depends
    on a report that is lost, or a leader that is gone.
    """

    def __init__(
        self,
        gates: QueueGates,
        peers: Collection[int],
        send: Callable[[int, bytes], bool],
        cpu_us: Callable[[], int],
    ) -> None:
        self._cpu_us = cpu_us  # the processor time of the loop's thread, in microseconds
        self._used_us = 0
        self.paced = PacedQueues()  # led here
        self._gates = gates  # of the queues that this node's clients publish to
        self._peers = peers  # the other nodes, as they come and go
        self._send = send  # carries a payload to a node
        self._claims: dict[int, OutflowClaims] = {}  # of queues that have a bound

    def poll(self, now_us: i64, elapsed_us: i64, turn_us: i64) -> None:
        """Tell all nodes what they may let in, and let in here what the time has brought."""
        self.paced.busy_us = turn_us if self._is_busy(elapsed_us, turn_us) else 0
        self._tell(self.paced.poll(now_us), int(now_us))
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

    def _is_busy(self, elapsed_us: i64, turn_us: i64) -> bool:
        """Return whether the loop is saturated, or waits for a processor that others have."""
        used_us = self._cpu_us()
        used, self._used_us = used_us - self._used_us, used_us
        return turn_us >= TURN_US_BUSY or used * 100 >= elapsed_us * BUSY_PERCENT

    def _take(self, rows: list[int], now_us: int) -> None:
        for at in range(0, len(rows) - 1, 2):
            self._gates.receive(rows[at], min(rows[at + 1], RATE_MAX), now_us)

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
