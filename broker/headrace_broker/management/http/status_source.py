"""Interface of the node for the HTTP API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from headrace_broker.model.status import Overview, QueueStatus
from headrace_broker.runtime.alarm.alarms import AlarmStatus
from headrace_broker.runtime.intake.flow_settings import Setting
from headrace_broker.runtime.security.authenticator import Verdict


class StatusSource(Protocol):
    """A running node. Everything but `authenticate` answers at once, from memory."""

    def not_ready_reason(self) -> str:
        """Return why clients should not be sent here now, "" when they may."""

    def overview(self) -> Overview:
        """Return the node's summary."""

    def queues(self) -> Sequence[QueueStatus]:
        """Return all queues of the cluster, in any order."""

    def queue(self, vhost: str, name: str) -> QueueStatus | None:
        """Return one queue."""

    def alarms(self) -> Sequence[AlarmStatus]:
        """Return the alarms that are on in the cluster."""

    def certificate_ends_s(self) -> float | None:
        """Return when the first of the node's certificates ends, in Unix time; None without one."""

    def critical_queues(self) -> Sequence[tuple[str, str]] | None:
        """Return vhost and name of the replicated queues that would lose their quorum without us.

        None where the cluster has no other node.
        """

    def leaderless_queues(self) -> Sequence[tuple[str, str]]:
        """Return vhost and name of the replicated queues without a leader, as far as known."""

    def flow_limits(self) -> Mapping[str, Setting]:
        """Return the limits of flow control by name."""

    async def authenticate(self, user: str, password: str, host: str) -> Verdict:
        """Return whether the password is right and the user may come from there."""

    def admits(self, user: str, host: str) -> bool:
        """Return whether a user whom a certificate has proven may come from there."""
