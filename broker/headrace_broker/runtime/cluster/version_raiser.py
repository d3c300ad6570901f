"""Raising the cluster version of a cluster that holds nothing yet."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from headrace_broker.catalog.cluster_version import CLUSTER_VERSION, is_empty
from headrace_broker.catalog.command import RaiseClusterVersion
from headrace_broker.catalog.version import upgrade_problem
from headrace_broker.runtime.cluster.catalog_service import CatalogService, CatalogUnavailableError

log: Final = logging.getLogger("headrace.cluster")


class VersionRaiser:
    """Proposes the newest cluster version on the catalog's leader while the cluster is empty.

    Nobody takes a release back that has stored nothing. In any other cluster the version is raised
    by whoever ends the upgrade.
    """

    def __init__(self, catalog: CatalogService, node: int) -> None:
        self._catalog = catalog
        self._node = node  # this node's id
        self._task: asyncio.Task[None] | None = None
        catalog.subscribe(lambda _: self.poll())
        catalog.on_serving = self.poll

    def poll(self) -> None:
        """Propose the newest version if it may be."""
        view = self._catalog.catalog
        if not self._catalog.serving or view.cluster_version >= CLUSTER_VERSION:
            return
        busy = self._task is not None and not self._task.done()
        if busy or not view.bootstrapped or not is_empty(view):
            return
        if not upgrade_problem(view, self._node, RaiseClusterVersion(CLUSTER_VERSION)):
            self._task = asyncio.get_running_loop().create_task(self._raise())

    async def _raise(self) -> None:
        try:
            await self._catalog.submit(RaiseClusterVersion(CLUSTER_VERSION))
        except CatalogUnavailableError as error:
            log.debug("cluster version not raised yet: %s", error)

    async def stop(self) -> None:
        """Stop a proposal that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
