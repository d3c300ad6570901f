"""Works of an administrator, asked of some node again and again until they are done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final, final

from headrace_broker.model.reply_code import AmqpError
from headrace_simulation.cluster.broker_cluster import BrokerCluster
from headrace_simulation.cluster.clients import Site
from headrace_simulation.cluster.world import NS

LOOK_S: Final = 0.5  # between looks whether it is under way

Work = Callable[[Site], Coroutine[Any, Any, None]]


@final
class Errand:
    """Works one after the other, each of which is begun again where it failed or its node died.

    Args:
        cluster: that is asked.
        away: numbers of processes that are not asked.
    """

    def __init__(self, cluster: BrokerCluster, away: Collection[int]) -> None:
        self._cluster = cluster
        self._away = away
        self._works: list[Work] = []
        self._site: Site | None = None  # where one is under way
        self._is_armed = False

    def is_done(self) -> bool:
        """Return whether nothing is left to do."""
        return not self._works and self._site is None

    def then(self, work: Work) -> None:
        """Do this as well, after what is to be done before."""
        self._works.append(work)
        self._arm(0)

    def only(self, work: Work) -> None:
        """Do this next, once what is under way has ended, and nothing else any more."""
        self._works = [work]
        self._arm(0)

    def _arm(self, delay_ns: int) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._cluster.world.at(delay_ns, self._look)

    def _look(self) -> None:
        self._is_armed = False
        if self._site is not None and not self._site.process.is_alive:
            self._site = None  # what it asked for last may still come to pass, and is found so
        if self._site is None:
            if not self._works:
                return
            found = [
                site
                for number, site in self._cluster.sites.items()
                if number not in self._away and not site.process.is_paused
            ]
            if found:
                self._site = self._cluster.world.rng.choice(found)
                self._cluster.spawn(self._site, self._do(self._site, self._works[0]))
        self._arm(int(LOOK_S * NS))

    async def _do(self, site: Site, work: Work) -> None:
        try:
            await work(site)
        except AmqpError as error:
            site.process.note(f"administrator: {error.text}")
        else:
            if self._site is site and work in self._works:
                self._works.remove(work)
        if self._site is site:
            self._site = None
