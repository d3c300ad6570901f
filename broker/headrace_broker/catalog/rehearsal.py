"""Trial of commands on a copy of the catalog."""

from __future__ import annotations

from typing import Final

from headrace_broker.catalog.command import AnyCommand, CommandError, encode_request
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.proposal import administrator_problem, command_problem
from headrace_broker.catalog.request import Request
from headrace_broker.catalog.result import Refused, Result, UpgradePending
from headrace_broker.catalog.version import is_silent, older_nodes, upgrade_problem
from headrace_broker.model.session import NODE_ID_MAX

_BOOT: Final = (1 << 32) - 1  # no node was started so often


class Rehearsal:
    """A copy of a catalog on which commands are tried.

    Args:
        snapshot: of the catalog.
    """

    def __init__(self, snapshot: bytes) -> None:
        self.catalog = Catalog.restore(snapshot)
        self._number = 0

    def try_one(self, command: AnyCommand) -> Result:
        """Return what the catalog would answer, and let the copy be as it would be then."""
        problem = command_problem(command)
        problem = problem or administrator_problem(command, self.catalog.users())
        if problem:
            return Refused(problem)
        if any(not is_silent(node) for node in older_nodes(self.catalog, 0, command)):
            return UpgradePending(upgrade_problem(self.catalog, 0, command))
        self._number += 1
        request = Request(NODE_ID_MAX, _BOOT, self._number)
        try:
            data = encode_request(request, command)
        except CommandError as error:
            return Refused(str(error))
        return self.catalog.apply(self.catalog.applied_index + 1, data)[0]
