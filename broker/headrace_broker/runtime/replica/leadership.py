"""Parts of a queue's replica that it has while it leads: most replicas do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from headrace_broker.model.definition import Queue
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.contract.dead_letter_cause import DeadLetterCauses
from headrace_broker.runtime.contract.host_watcher import HostWatcher
from headrace_broker.runtime.contract.lane_port import SessionTransport
from headrace_broker.runtime.contract.queue_log import QueueLog
from headrace_broker.runtime.replica.feed import Gets
from headrace_broker.runtime.replica.queue_meter import QueueMeter
from headrace_broker.runtime.replica.queue_time import QueueTime
from headrace_broker.runtime.replica.rounds import Rounds
from headrace_broker.runtime.replica.session_telling import SessionTelling
from headrace_broker.runtime.replica.ticking import Ticking


@final
class Leadership:
    """One leadership of a replica; another one has all anew."""

    def __init__(
        self,
        queue: Queue,
        log: QueueLog,
        reach: SessionTransport,
        watcher: HostWatcher,
        clock: Clock,
        time: QueueTime,
        propose: Callable[[int, bytes], None],
    ) -> None:
        self.meter = QueueMeter(clock)
        self.gets = Gets(log, reach)
        self.ticking = Ticking(queue, watcher, time)
        self.causes = DeadLetterCauses()
        self.rounds = Rounds(propose)
        self.telling = SessionTelling(queue.group, reach, watcher.paced_queues())

    def end(self) -> None:
        """Answer no more gets, and give the confirms that wait."""
        self.gets.forget()
        self.telling.stop()
