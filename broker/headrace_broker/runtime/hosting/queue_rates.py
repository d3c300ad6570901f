"""The rates of queues that are led here, and of what accounts bring, kept up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from headrace_broker.flow.account import Ledger
from headrace_broker.flow.activity import SECOND_US
from headrace_broker.flow.rate_history import RateHistory
from headrace_broker.model.flow_status import NEVER
from headrace_broker.runtime.contract.recently_applied import RecentlyApplied
from headrace_broker.runtime.replica.queue_host import QueueHost

SAMPLE_SECONDS: Final = 1.0  # between samples: the shortest time over which a rate is told

NOTHING: Final = (0, 0, 0)

Rate = tuple[float, float, float]


class QueueRates:
    """Samples once a second of queues that moved within a minute."""

    def __init__(
        self,
        hosts: dict[int, QueueHost],
        recent: RecentlyApplied,
        ledger: Ledger,
        clock_us: Callable[[], int],
    ) -> None:
        self._hosts = hosts  # the replicas of this node by group
        self._recent = recent.reader()
        self._ledger = ledger  # its accounts
        self._clock_us = clock_us  # a time that only goes forward
        self._histories: dict[int, RateHistory] = {}
        self._quiet: dict[int, tuple[int, int, int]] = {}  # where those stand that moved once
        self._sampled_us = clock_us()
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to take samples."""
        self._sampled_us = self._clock_us()
        self._wait()

    def stop(self) -> None:
        """Take no more samples."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(SAMPLE_SECONDS, self._tick)

    def _tick(self) -> None:
        self._wait()
        self.sample()

    def sample(self) -> None:
        """Take a sample of everything that moves."""
        now = self._clock_us()
        elapsed = now - self._sampled_us
        if elapsed <= 0:
            return
        self._ledger.sample(elapsed / SECOND_US)
        histories = self._histories
        for group in {*histories, *self._recent()}:
            host = self._hosts.get(group)
            if host is None:
                histories.pop(group, None)
                self._quiet.pop(group, None)
                continue
            counts = host.moves.counts()
            history = histories.get(group)
            if history is None:
                before = self._quiet.get(group, NOTHING)
                if counts == before:
                    continue
                history = histories[group] = RateHistory(before, self._sampled_us)
            history.sample(counts, now)
            if history.is_over(counts, now):
                del histories[group]
                self._quiet[group] = counts
        self._sampled_us = now
        for gone in self._quiet.keys() - self._hosts.keys():
            del self._quiet[gone]

    def moves(self, group: int) -> bool:
        """Return whether something has moved in a queue within the last minute."""
        return group in self._histories

    def rates(self, group: int) -> tuple[Rate, Rate, Rate]:
        """Return the rates of what arrived, was delivered and was settled at a queue led here."""
        history, host = self._histories.get(group), self._hosts.get(group)
        if history is None or host is None:
            return NEVER, NEVER, NEVER
        arrived, delivered, settled = history.rates(host.moves.counts(), self._clock_us())
        return arrived, delivered, settled
