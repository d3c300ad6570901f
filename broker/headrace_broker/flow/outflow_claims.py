"""Shares of nodes in the admission to a queue that is deep, by waiting publishers.

Where each node had an equal part, one publisher on a node of its own got as much as all of another
node together. So each node says how much weight its waiting publishers have, and counts as one that
has at least one of weight 1: somebody may come who never had to wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.model.limits import OUTFLOW_LEASE_US, OUTFLOW_MIN

CLAIM_MAX: Final = 1_000_000  # weight of a node's publishers; so that products stay within 64 bits


@final
class OutflowClaims:
    """Claims of the nodes for their publishers at one queue."""

    def __init__(self) -> None:
        self._heard: dict[int, tuple[int, int]] = {}  # by node: the weight, and when it said so

    def receive(self, node: int, weight: int, now_us: int) -> None:
        """A node says so; it counts for OUTFLOW_LEASE_US."""
        self._heard[node] = (min(weight, CLAIM_MAX), now_us)

    def parts(self, bound: i64, nodes: Iterable[int], now_us: int) -> dict[int, int]:
        """Divide a bound, messages a second, among nodes: OUTFLOW_MIN or more; 0: no bound."""
        weights = {node: self._weight(node, now_us) for node in nodes}
        total: i64 = sum(weights.values())
        if bound == 0:
            return dict.fromkeys(weights, 0)
        return {node: max(bound * each // total, OUTFLOW_MIN) for node, each in weights.items()}

    def _weight(self, node: int, now_us: int) -> int:
        weight, heard_us = self._heard.get(node, (1, now_us))
        return max(weight, 1) if now_us - heard_us <= OUTFLOW_LEASE_US else 1
