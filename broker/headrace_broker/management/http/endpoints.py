"""Parts of the API: classes whose methods are decorated with the routes that they answer."""

from __future__ import annotations

from headrace_broker.management.http.route import Route
from headrace_broker.runtime.administration.administration import NodeAdministration
from headrace_broker.runtime.administration.status import NodeStatusSource


class Endpoints:
    """Answers the routes that its methods are decorated with; see `route.listed` and the like."""

    def __init__(self, node: NodeAdministration, source: NodeStatusSource) -> None:
        self._node = node  # what is looked at and changed through it
        self._source = source  # what the node tells of itself; asked at each request

    def routes(self) -> list[Route]:
        """Return what is answered."""
        return self.decorated(type(self))

    def decorated(self, kind: type[Endpoints]) -> list[Route]:
        """Return the routes of the methods that a class has of its own, in their order."""
        return [
            row._replace(handler=getattr(self, name))
            for name, method in vars(kind).items()
            for row in getattr(method, "routes", ())
        ]
