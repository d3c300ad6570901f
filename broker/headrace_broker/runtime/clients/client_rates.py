"""Rates of connections, channels, exchanges and vhosts, sampled every five seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import add
from typing import Final, NamedTuple

from headrace_broker.catalog.view import CatalogView
from headrace_broker.model import limits
from headrace_broker.model.stats import (
    CONNECTION_FIGURES,
    EXCHANGE_FIGURES,
    VHOST_FIGURES,
    ExchangeStats,
    VhostStats,
)
from headrace_broker.runtime.clients.histories import Figures, Histories, samples
from headrace_broker.runtime.clients.sample_turns import SampleTurns
from headrace_broker.runtime.contract.port import ConnectionInfo
from headrace_broker.runtime.routing.router import Router
from headrace_broker.runtime.rpc.question import Stats

CONNECTION: Final = 0  # stands for the connection itself among the numbers of its channels
_NOTHING: Final[Figures] = (0,) * len(CONNECTION_FIGURES)

Rates = tuple[float, ...]


class _Sample(NamedTuple):
    """Counters at a sample, and their increase a second since the previous one."""

    at_ms: int
    figures: Figures
    rates: Rates


class ClientRates:
    """Keeps the last sample of each client, and histories of exchanges and vhosts."""

    def __init__(
        self, connections: Mapping[str, ConnectionInfo], router: Router, view: CatalogView
    ) -> None:
        self._connections = connections  # the open ones by id
        self._router = router  # knows what was published to exchanges
        self._view = view  # knows which vhosts there are
        self._clients: dict[tuple[str, int], _Sample] = {}
        self._room = limits.RATED_CLIENTS_MAX  # for clients that were not there at the last sample
        self._over: dict[str, Figures] = {}  # by vhost: what passed connections that are closed
        self._vhosts: Histories[str] = Histories(len(VHOST_FIGURES), limits.HISTORY_VHOSTS_MAX)
        self._exchanges: Histories[tuple[str, str]] = Histories(
            len(EXCHANGE_FIGURES), limits.HISTORY_EXCHANGES_MAX, only_grow=True
        )

    def closed(self, info: ConnectionInfo) -> None:
        """Add the traffic of a closing connection to its vhost."""
        before = self._over.get(info.vhost, _NOTHING)
        self._over[info.vhost] = tuple(map(add, before, _passed(info)))

    def rates(self, connection: str, channel: int = CONNECTION) -> Rates:
        """Return by how much the figures of a connection or channel grew per second, () if unknown.

        Those of a connection are CONNECTION_FIGURES, those of a channel CLIENT_FIGURES.
        """
        sample = self._clients.get((connection, channel))
        return sample.rates if sample is not None else ()

    async def sample(
        self,
        clock_ms: Callable[[], int],  # Unix time
        lengths: Mapping[str, tuple[int, int, int]],  # by vhost: ready, unacknowledged and others
        turns: SampleTurns,
    ) -> None:
        """Take a sample, in pieces."""
        vhosts = {vhost.name for vhost in self._view.vhosts()}
        passed = {vhost: each for vhost, each in self._over.items() if vhost in vhosts}
        self._over = dict(passed)
        fresh: dict[tuple[str, int], _Sample] = {}
        self._room = limits.RATED_CLIENTS_MAX - len(self._clients)
        for info in list(self._connections.values()):
            figures = _passed(info)
            passed[info.vhost] = tuple(map(add, passed.get(info.vhost, _NOTHING), figures))
            self._note(fresh, (info.id, CONNECTION), figures, clock_ms())
            await turns.row()
            if info.control is not None:
                for number, traffic in info.control.traffic():
                    self._note(fresh, (info.id, number), traffic.counts(), clock_ms())
                    await turns.row()
        self._clients = fresh
        now_ms = clock_ms()
        for vhost in vhosts:
            ready, unsettled, later = lengths.get(vhost, (0, 0, 0))
            figures = (ready, unsettled, *passed.get(vhost, _NOTHING), later)
            self._vhosts.sample(vhost, figures, now_ms)
        self._vhosts.forget_others(vhosts)
        self._sample_exchanges(now_ms)

    def _note(
        self,
        fresh: dict[tuple[str, int], _Sample],
        key: tuple[str, int],
        figures: Figures,
        now_ms: int,
    ) -> None:
        before = self._clients.get(key)
        if before is None:
            if self._room <= 0:
                return
            self._room -= 1
        fresh[key] = _Sample(now_ms, figures, _growth(before, figures, now_ms))

    def _sample_exchanges(self, now_ms: int) -> None:
        known = set()
        for vhost, name, traffic in self._router.traffic():
            known.add((vhost, name))
            self._exchanges.sample((vhost, name), traffic.counts(), now_ms)
        self._exchanges.forget_others(known)

    # This node's rows

    def rows(self, question: Stats) -> Iterator[VhostStats | ExchangeStats]:
        """Return this node's figures of vhosts and exchanges."""
        for vhost in self._vhosts.keys() if question.vhosts else ():
            history = self._vhosts.find(vhost)
            if history is not None:
                yield VhostStats(vhost, history.last(), samples(history, question))
        wanted = question.exchanges
        for vhost, name in self._exchanges.keys() if wanted is None else wanted:
            history = self._exchanges.find((vhost, name))
            if history is not None:
                yield ExchangeStats(vhost, name, history.last(), samples(history, question))


def _passed(info: ConnectionInfo) -> Figures:
    """Return the figures that CONNECTION_FIGURES names."""
    return (*info.byte_counts(), *info.traffic())


def _growth(before: _Sample | None, figures: Figures, now_ms: int) -> Rates:
    """Return by how much figures grew per second; () when they began anew."""
    if before is None or now_ms <= before.at_ms:
        return ()
    if figures == before.figures:  # of most clients
        return (0.0,) * len(figures)
    grown = [now - then for now, then in zip(figures, before.figures, strict=True)]
    if min(grown) < 0:
        return ()
    per_second = 1000 / (now_ms - before.at_ms)
    return tuple([round(per_second * each, 2) for each in grown])
