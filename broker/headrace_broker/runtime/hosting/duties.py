"""Duties of a node for the queues that it leads, beyond serving sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, final

from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.catalog.cluster_version import in_force
from headrace_broker.catalog.event import ClusterVersionRaised, Event, NodeAdded
from headrace_broker.catalog.message_bound import cluster_bytes
from headrace_broker.catalog.policy import EffectiveArguments
from headrace_broker.catalog.proposal import event_defect
from headrace_broker.catalog.view import CatalogView
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.model.definition import Queue
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.contract.dead_letter import DeadLetter
from headrace_broker.runtime.contract.host_watcher import Configuration
from headrace_broker.runtime.dead_letter.service import DeadLetterService
from headrace_broker.runtime.hosting.ends import FIRST_VERSION, Duties, ReplicaHome, ignore
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.replica.queue_settings import expires_ms, queue_settings
from headrace_broker.runtime.replica.queue_timer import QueueTimer

log = logging.getLogger("headrace.queue")


@final
class LeaderDuties(Duties):
    """Keeps queues to their arguments and policies, wakes them, and sends their dead letters."""

    def __init__(
        self,
        hosting: ReplicaHome,
        view: CatalogView,
        dead_letter_service: DeadLetterService,
        drop_expired: Callable[[Queue], None],
        clock: Clock | None = None,
    ) -> None:
        super().__init__(hosting)
        clock = Clock() if clock is None else clock
        self.dead_letter_service = dead_letter_service  # takes dead letters
        self._hosts = hosting.hosts  # replicas on this node by queue group
        self._view = view
        self._drop_expired = drop_expired  # deletes a queue, unless it is used meanwhile
        self._clock = clock
        self.on_led: Callable[[QueueHost], None] = ignore  # told of queues led here from now
        # told of each lot of dead letters: queue, REASON (0 where the machine keeps them until they
        # have arrived) and how many
        self.on_dead_lettered: Callable[[Queue, int, int], None] = ignore
        self._led: set[int] = set()  # of which `on_led` has told
        self._message_bytes = cluster_bytes(view)
        self._effective = EffectiveArguments(view)
        self._ticks = QueueTimer(self._tick, clock.queue_ms)
        self._expiries = QueueTimer(self._look_at_expiry, clock.monotonic_ms)

    def stop(self) -> None:
        """Stop all duties."""
        self._ticks.stop()
        self._expiries.stop()
        self.dead_letter_service.stop()

    def on_events(self, events: Iterable[Event]) -> list[Queue]:
        """Follow the catalog; return the queues, led here or not, that have to be told of it."""
        for event in events:
            if problem := event_defect(event):
                log.warning("%s", problem)
        changed = {queue.group: queue for queue in self._effective.changed(events)}
        upgraded = {event.node.id for event in events if isinstance(event, NodeAdded)}
        before, self._message_bytes = self._message_bytes, cluster_bytes(self._view)
        raised = any(isinstance(event, ClusterVersionRaised) for event in events)
        everywhere = raised or before != self._message_bytes
        if upgraded or everywhere:
            for host in self._hosts.values():
                queue = host.queue
                touched = not upgraded.isdisjoint((*queue.members, *queue.leaving))
                if host.leading and (touched or everywhere):
                    changed[queue.group] = queue
        self.dead_letter_service.on_events(events)
        return list(changed.values())

    # What queues are

    @override
    def configuration(self, queue: Queue) -> Configuration:
        arguments = self._effective.of(queue)
        settings = queue_settings(queue, arguments, self._message_bytes)
        return Configuration(self.machine_version(queue), settings, arguments)

    @override
    def machine_version(self, queue: Queue) -> int:
        """Return the highest machine version of the cluster version that all with a replica know.

        Replicas that are on their way out count, for they apply what is committed until they have
        gone; so does a node that the catalog does not know yet, as one that knows the first only.
        """
        version = min(int(MACHINE_VERSION), in_force(self._view).machine)
        for member in (*queue.members, *queue.leaving):
            node = self._view.node(member)
            known = FIRST_VERSION if node is None else node.machine_version
            version = min(version, known)
        return version

    @override
    def led(self, host: QueueHost) -> None:
        self.configured(host)
        self.dead_letter_service.release(
            host.queue.group
        )  # what an earlier leadership had under way is void
        if host.kept(1):
            self.dead_letter_service.keep(host)
        if host.queue.group not in self._led:
            self._led.add(host.queue.group)
            self.on_led(host)

    @override
    def configured(self, host: QueueHost) -> None:
        expiry = expires_ms(host.arguments)
        if expiry:
            self._expiries.arm(host.queue.group, int(host.used_ms) + expiry)
        else:
            self._expiries.forget(host.queue.group)
        self.dead_letter_service.reconfigured(host.queue.group)

    @override
    def left(self, queue: Queue) -> None:
        self._led.discard(queue.group)
        self._effective.forget(queue)
        self._ticks.forget(queue.group)
        self._expiries.forget(queue.group)
        self.dead_letter_service.release(queue.group)

    # Time

    @override
    def queue_due(self, queue: Queue, due_ms: i64) -> None:
        self._ticks.arm(queue.group, int(due_ms))

    def _tick(self, group: int, now_ms: int) -> None:
        host = self._hosts.get(group)
        if host is not None:
            host.tick(now_ms)

    def _look_at_expiry(self, group: int, now_ms: int) -> None:
        """Delete a queue that was unused for its time; else schedule the next check."""
        host = self._hosts.get(group)
        if host is None or not host.serving:
            return
        expiry = expires_ms(host.arguments)
        if not expiry:
            return
        used = host.machine.consumers() or host.machine.leased_count > 0
        since = now_ms if used else int(host.used_ms)
        if since + expiry > now_ms:
            self._expiries.arm(group, since + expiry)
            return
        log.info("queue %r in vhost %r has expired", host.queue.name, host.queue.vhost)
        self._drop_expired(host.queue)

    # Dead letters

    @override
    def dead_lettered(
        self, queue: Queue, arguments: dict[str, Any], dead_letters: list[DeadLetter]
    ) -> None:
        if dead_letters:
            self.on_dead_lettered(queue, int(dead_letters[0].reason), len(dead_letters))
        self.dead_letter_service.accept(queue, arguments, dead_letters)

    @override
    def dead_letters_lost(self, queue: Queue, count: int) -> None:
        self.dead_letter_service.lost(queue, count)

    @override
    def dead_letters_congested(self, queue: Queue) -> bool:
        return self.dead_letter_service.is_congested(queue)

    @override
    def dead_letters_kept(self, queue: Queue, ids: list[int], causes: list[int]) -> None:
        self.on_dead_lettered(queue, 0, len(ids))
        host = self._hosts.get(queue.group)
        if host is not None:
            self.dead_letter_service.note_causes(queue, ids, causes)
            self.dead_letter_service.keep(host)

    def tick_soon(self, group: int) -> None:
        """Run a queue's due work in the next turn of the loop: its dead letters have left."""
        asyncio.get_running_loop().call_soon(self._tick_now, group)

    def _tick_now(self, group: int) -> None:
        self._tick(group, int(self._clock.queue_ms()))

    @override
    def dead_letters_forgotten(self, queue: Queue, ids: list[int]) -> None:
        self.dead_letter_service.forgotten(queue.group, ids)
