"""Effects of the machine for sessions, sent to their gateways."""

from __future__ import annotations

from librt.strings import read_i64_be

from headrace_broker.core.queue.command.command import ENQUEUE_SEQ_OFFSET
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
from headrace_broker.runtime.contract.lane_port import SessionTransport


def tell_session(reach: SessionTransport, effect: Effect, data: bytes) -> bool:
    """Pass on what an effect of an entry says to a session; False when to nobody."""
    if isinstance(effect, Enqueued):
        end = reach.session(effect.session)
        if end is not None:
            end.enqueued(read_i64_be(data, ENQUEUE_SEQ_OFFSET), effect.seq)
    elif isinstance(effect, Controlled):
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
