"""Interface between a queue's replica and its node."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, final

from mypy_extensions import i64, mypyc_attr

from headrace_broker.core.queue.messages.effect import GroupAnswer
from headrace_broker.core.queue.messages.settings import QueueSettings
from headrace_broker.core.queue.state.lease_effect import LeaseGone
from headrace_broker.core.queue.state.tally import Tally
from headrace_broker.flow.paced_confirms import PacedQueues
from headrace_broker.model.definition import Queue
from headrace_broker.runtime.contract.dead_letter import DeadLetter
from headrace_broker.runtime.contract.recently_applied import RecentlyApplied


@final
class Configuration:
    """Effective settings of a queue."""

    def __init__(self, version: i64, settings: QueueSettings, arguments: dict[str, Any]) -> None:
        self.version = version  # of its machine: the highest that all its members know
        self.settings = settings  # for its machine
        self.arguments = arguments  # effective ones; the leader's node acts on some itself


@mypyc_attr(allow_interpreted_subclasses=True)
class HostWatcher:
    """A replica's node. All but the first four concern replicas that lead."""

    @abstractmethod
    def recent(self) -> RecentlyApplied:
        """Return where the node's replicas note their changes."""

    @abstractmethod
    def queue_leader_changed(self, queue: Queue, leader: int) -> None:
        """The replica knows a new leader (0 for none); it serves when that is this node."""

    @abstractmethod
    def command_rejected(self, queue: Queue, reason: str) -> None:
        """A committed command was not understood and had no effect."""

    @abstractmethod
    def configuration(self, queue: Queue) -> Configuration:
        """Return what the queue is to be now."""

    def tally(self) -> Tally | None:
        """Return the counter of messages that leave queues led here, None without one."""
        return None

    def paced_queues(self) -> PacedQueues:
        """Return the node's record of queues led here whose confirms wait."""
        return PacedQueues()

    @abstractmethod
    def queue_unused(self, queue: Queue) -> None:
        """The last consumer of a queue led here has gone."""

    def queue_due(self, queue: Queue, due_ms: i64) -> None:
        """Call `QueueHost.tick` at this Unix time, unless it is called before that anyway."""

    def dead_lettered(
        self, queue: Queue, arguments: dict[str, Any], dead_letters: list[DeadLetter]
    ) -> None:
        """Receive messages that left the queue for its dead letter exchange."""

    def dead_letters_lost(self, queue: Queue, count: int) -> None:
        """Count dead messages that could not be read any more, or exceeded the bound."""

    def dead_letters_congested(self, queue: Queue) -> bool:
        """Return whether a queue's messages had better not expire now, for they become letters."""
        return False

    def dead_letters_kept(self, queue: Queue, ids: list[int], causes: list[int]) -> None:
        """The machine keeps messages until they have arrived; causes as of `DeadLetter.cause`."""

    def dead_letters_forgotten(self, queue: Queue, ids: list[int]) -> None:
        """The machine keeps these messages no more."""

    @abstractmethod
    def group_answered(self, queue: Queue, answer: GroupAnswer) -> None:
        """The machine has answered a group that leases messages, or reads the archive."""

    @abstractmethod
    def lease_gone(self, queue: Queue, gone: LeaseGone) -> None:
        """A group has a lease no more, and did not settle it."""
