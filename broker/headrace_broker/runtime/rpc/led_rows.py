"""Rows about queues, of the nodes that lead them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.listing import Asked, Listing, ask_everywhere, serve_rows

R = TypeVar("R", bound=msgspec.Struct)


class LedRows(Generic[R]):
    """Lists rows about the queues of all nodes, and gives those of this node to the others."""

    def __init__(
        self,
        rpc: Rpc,
        names: Mapping[int, str],
        hosts: Mapping[int, QueueHost],
        asked: tuple[Listing, type[R]],
        rows: Callable[[QueueHost, str], Iterable[R]],
    ) -> None:
        self._rpc = rpc  # asks the other nodes
        self._names = names  # of all nodes by id; they may change
        self._hosts = hosts  # replicas on this node by group
        self._asked = Asked(*asked)
        self._rows = rows  # of a replica that leads, and the name of its node
        serve_rows(rpc, type(asked[0]), self._own)

    async def everywhere(self) -> tuple[list[R], tuple[str, ...]]:
        """Return the rows of all nodes, and the names of those that did not answer."""
        own = self._rpc.node
        others = {peer: name for peer, name in self._names.items() if peer != own}
        found = await ask_everywhere(self._rpc, others, self._asked, self._own(None))
        return found.rows, found.missing

    def _own(self, _question: Any) -> Iterator[R]:
        node = self._names[self._rpc.node]
        for host in list(self._hosts.values()):
            if host.serving:
                yield from self._rows(host, node)
