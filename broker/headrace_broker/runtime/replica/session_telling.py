"""Effects of the machine for sessions, sent to their gateways."""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i64_be
from mypy_extensions import i64

from headrace_broker.core.queue.command.command import ENQUEUE_SEQ_OFFSET
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import (
    REFUSED_FENCED,
    Completed,
    ConfirmsDeferred,
    Controlled,
    Effect,
    Enqueued,
    Gap,
    PublishRejected,
    TimedOut,
)
from headrace_broker.flow.paced_confirms import (
    STANDING_MIN,
    PacedConfirms,
    PacedQueues,
    QueueFigures,
)
from headrace_broker.model.session import tells_deaths
from headrace_broker.runtime.contract.lane_port import SessionTransport
from headrace_broker.runtime.replica.queue_meter import QueueMeter

BEHIND_CONFIRMS: Final = (PublishRejected, ConfirmsDeferred, Completed, Gap)  # told in order


@final
class SessionTelling:
    """Tells sessions what a queue led here answers them."""

    def __init__(self, group: int, reach: SessionTransport, paced_queues: PacedQueues) -> None:
        self.paced: PacedConfirms | None = None  # of a queue in which messages stood
        self._group = group
        self._reach = reach
        self._paced_queues = paced_queues

    def tell(self, effect: Effect, data: bytes, new: i64) -> bool:
        """Pass on what an effect of an entry with so many new messages says; False: to nobody."""
        paced = self.paced
        if isinstance(effect, Enqueued):
            first = read_i64_be(data, ENQUEUE_SEQ_OFFSET)
            if paced is not None and not tells_deaths(effect.session):
                paced.confirm(effect.session, first, effect.seq, new)
            else:
                self._confirm(effect.session, first, effect.seq)
            return True
        if paced is not None and isinstance(effect, BEHIND_CONFIRMS):
            paced.tell_all()
        return tell_session(self._reach, effect, data)

    def applied(self, machine: QueueMachine, meter: QueueMeter, delivered: i64) -> None:
        """Tell confirms at the pace of the queue, after each entry; `delivered` since it leads."""
        ready = machine.ready_count
        if self.paced is not None or (ready > STANDING_MIN and meter.busy > 0):
            counts = (delivered, ready, machine.unsettled_count, meter.busy)
            self.follow(QueueFigures(meter.now_us, *counts, meter.command_us))

    def follow(self, queue: QueueFigures) -> None:
        """Tell confirms as these figures of the queue allow."""
        if self.paced is None:
            self.paced = PacedConfirms(self._group, self._confirm, self._paced_queues)
        self.paced.applied(queue)

    def is_behind(self, now_us: i64) -> bool:
        """Return whether a confirm waits, or did lately, until messages have left the queue."""
        return self.paced is not None and self.paced.is_behind(now_us)

    def stop(self) -> None:
        """Tell confirms that wait: this replica may lead no more, and what it applied stays."""
        if self.paced is not None:
            self.paced.stop()
            self.paced = None

    def _confirm(self, session: int, first: int, last: int) -> None:
        end = self._reach.session(session)
        if end is not None:
            end.enqueued(first, last)


def tell_session(reach: SessionTransport, effect: Effect, data: bytes) -> bool:
    """Pass on what an effect, other than a confirm, says to a session; False when to nobody."""
    if isinstance(effect, Controlled):
        end = reach.session(effect.session)
        if end is not None:
            end.controlled(effect.seq, effect.status, effect.count)
    elif isinstance(effect, Gap):
        end = reach.session(effect.session)
        if end is not None:
            end.gap(effect.lane, effect.expected)
    elif isinstance(effect, PublishRejected):
        end = reach.session(effect.session)
        if end is not None:
            end.rejected(effect.first, effect.last, effect.why == REFUSED_FENCED)
    elif isinstance(effect, ConfirmsDeferred):
        end = reach.session(effect.session)
        if end is not None:
            end.deferred(effect.rows)
    elif isinstance(effect, Completed):
        end = reach.session(effect.session)
        if end is not None:
            end.completed(effect.rows)
    elif isinstance(effect, TimedOut):
        end = reach.session(effect.session)
        if end is not None:
            end.timed_out(effect.consumer)
    else:
        return False
    return True
