"""Limits on open connections and channels of users and vhosts on this node.

Source: RabbitMQ's guides on virtual hosts ("Limits") and on per-user limits; texts are its own. It
counts in the whole cluster; here each node counts its own, as it does for publish rates.
"""

from __future__ import annotations

from typing import Final, final

from headrace_broker.catalog.view import CatalogView
from headrace_broker.runtime.contract.port import ConnectionInfo

MAX_CONNECTIONS: Final = "max-connections"
MAX_CHANNELS: Final = "max-channels"

# Whose limit refuses a connection, channel or stream.
BY_NODE: Final = "node"
BY_VHOST: Final = "vhost"
BY_USER: Final = "user"


@final
class ClientCounts:
    """Counts of clients, and the limits that they exceed.

    Args:
        view: the catalog, for the limits.
        connections: those that are open on this node, by id; kept up by its owner.

    Attributes:
        refused_connections: since the node's start, by BY_*; streams over gRPC included. Of the
            node's own bound those of AMQP only: gRPC's library refuses by itself.
        refused_channels: likewise.
    """

    def __init__(self, view: CatalogView, connections: dict[str, ConnectionInfo]) -> None:
        self._view = view
        self._connections = connections
        self.refused_connections = {BY_NODE: 0, BY_VHOST: 0, BY_USER: 0}
        self.refused_channels = 0

    def connection_refusal(self, user: str, vhost: str) -> str:
        """Return why one more connection of a user to a vhost is one too many, "" when not."""
        limit = self._view.vhost_limits(vhost).get(MAX_CONNECTIONS)
        if limit is not None:
            count = sum(each.vhost == vhost for each in self._connections.values())
            if count >= limit:
                self.refused_connections[BY_VHOST] += 1
                refused = f"access to vhost '{vhost}' refused for user '{user}'"
                return f"{refused}: connection limit ({limit}) is reached"
        limit = self._view.user_limits(user).get(MAX_CONNECTIONS)
        if limit is not None:
            count = sum(each.user == user for each in self._connections.values())
            if count >= limit:
                self.refused_connections[BY_USER] += 1
                refused = f"connection refused for user '{user}'"
                return f"{refused}: user connection limit ({limit}) is reached"
        return ""

    def channel_refusal(self, user: str) -> str:
        """Return why one more channel of a user is one too many, "" when it is not."""
        limit = self._view.user_limits(user).get(MAX_CHANNELS)
        if limit is None:
            return ""
        found = [each.channels for each in self._connections.values() if each.user == user]
        if sum(found) < limit:
            return ""
        self.refused_channels += 1
        return (
            f"number of channels opened for user '{user}' has reached the maximum allowed user "
            f"limit of ({limit})"
        )
