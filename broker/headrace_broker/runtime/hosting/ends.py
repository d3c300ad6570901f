"""Interfaces of the node to its replicas and sessions, with defaults until they are set."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, final

from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.core.queue.messages.effect import GroupAnswer
from headrace_broker.core.queue.messages.settings import QueueSettings
from headrace_broker.core.queue.state.lease_effect import EXPIRED, LeaseGone
from headrace_broker.core.queue.state.tally import Tally
from headrace_broker.flow.paced_confirms import PacedQueues
from headrace_broker.model.definition import Queue
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.contract.host_watcher import Configuration, HostWatcher
from headrace_broker.runtime.contract.lane_port import Copying, Gathering, SessionOwner
from headrace_broker.runtime.contract.recently_applied import RecentlyApplied
from headrace_broker.runtime.contract.traffic import Traffic
from headrace_broker.runtime.intake.outflow_watch import OutflowWatch
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.session.turns import CloseTurns, CopyTurns, SettleTurns

FIRST_VERSION: Final = 1  # of machines, which cannot be configured
ROWS_SHOWN: Final = 8  # rows of message ids in a line of the log

log = logging.getLogger("headrace.queue")


class ReplicaHome(Protocol):
    """The node of replicas; see `Hosting`."""

    hosts: dict[int, QueueHost]
    traffic: Traffic
    recent: RecentlyApplied
    outflow: OutflowWatch
    on_unused: Callable[[Queue], None]
    on_group_answer: Callable[[GroupAnswer], None]

    def leader_changed(self, queue: Queue, leader: int) -> None:
        """See `Hosting`."""


class SessionHome(Protocol):
    """The node of sessions; see `Hosting`."""

    clock: Clock

    def locate(self, queue: Queue) -> int:
        """See `Hosting`."""

    def machine_version(self, queue: Queue) -> int:
        """See `Hosting`."""

    def session_closed(self, session: int) -> None:
        """See `Hosting`."""


class Duties(HostWatcher):
    """Node of replicas that does nothing for queues led here, until its parts are together."""

    def __init__(self, hosting: ReplicaHome) -> None:
        self._hosting = hosting

    def machine_version(self, queue: Queue) -> int:
        """Return the highest machine version that this node and all other members know."""
        return FIRST_VERSION

    def led(self, host: QueueHost) -> None:
        """A queue is led here now."""

    def configured(self, host: QueueHost) -> None:
        """The effective arguments of a queue led here are others now."""

    def left(self, queue: Queue) -> None:
        """A queue is led here no more, or gone."""

    @override
    def queue_leader_changed(self, queue: Queue, leader: int) -> None:
        self._hosting.leader_changed(queue, leader)

    @override
    def tally(self) -> Tally:
        return self._hosting.traffic.tally

    @override
    def paced_queues(self) -> PacedQueues:
        return self._hosting.outflow.paced

    @override
    def recent(self) -> RecentlyApplied:
        return self._hosting.recent

    @override
    def queue_unused(self, queue: Queue) -> None:
        if queue.auto_delete:
            self._hosting.on_unused(queue)

    @override
    def command_rejected(self, queue: Queue, reason: str) -> None:
        log.error("queue %r (group %d): command ignored: %s", queue.name, queue.group, reason)

    @override
    def configuration(self, queue: Queue) -> Configuration:
        return Configuration(FIRST_VERSION, QueueSettings(), {})

    @override
    def group_answered(self, queue: Queue, answer: GroupAnswer) -> None:
        self._hosting.on_group_answer(answer)

    @override
    def lease_gone(self, queue: Queue, gone: LeaseGone) -> None:
        lease = gone.lease
        place = f"queue {queue.name!r} in vhost {queue.vhost!r}"
        text = "lease %d of group %r on %s %s: %d messages went back (ids %s)"
        name = gone.name.decode(errors="replace")
        expired = lease.state == EXPIRED
        if expired:
            self._hosting.traffic.leases_expired += 1
        how = "has expired" if expired else "was released"
        level = logging.WARNING if expired else logging.INFO
        log.log(level, text, lease.number, name, place, how, lease.count, shown_rows(lease.rows))


@final
class Owner(SessionOwner):
    """Interface of the node for sessions."""

    def __init__(self, hosting: SessionHome) -> None:
        self.turns = SettleTurns()  # when they send what gathered
        # when they tell their queues that they end
        self.closes = CloseTurns(lambda callback: asyncio.get_running_loop().call_soon(callback))
        self._copies = CopyTurns(lambda callback: asyncio.get_running_loop().call_soon(callback))
        self._hosting = hosting

    @override
    def locate(self, queue: Queue) -> int:
        return self._hosting.locate(queue)

    @override
    def machine_version(self, queue: Queue) -> int:
        return self._hosting.machine_version(queue)

    @override
    def session_closed(self, session: int) -> None:
        self._hosting.session_closed(session)

    @override
    def monotonic_ms(self) -> i64:
        return self._hosting.clock.monotonic_ms()

    @override
    def send_later(self, gathering: Gathering) -> None:
        self.turns.add(gathering)

    @override
    def copy_in_turns(self, copying: Copying) -> None:
        self._copies.add(copying)

    @override
    def close_in_turn(self, closing: Gathering) -> None:
        self.closes.add(closing)


def ignore(*_: object) -> None:
    """Do nothing until the node has said what to do."""


def shown_rows(rows: list[int]) -> str:
    """Return rows of ids for people: the first few."""
    shown = [
        f"{first}-{stop - 1}" if stop - first > 1 else f"{first}"
        for first, stop in zip(
            rows[: 2 * ROWS_SHOWN : 2], rows[1 : 2 * ROWS_SHOWN : 2], strict=True
        )
    ]
    return ", ".join(shown) + (", ..." if len(rows) > 2 * ROWS_SHOWN else "")
