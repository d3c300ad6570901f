"""Objects that come and go with messages are not followed by the garbage collector."""

from __future__ import annotations

import gc

import pytest

from headrace_broker.codecs.event import Acked, Method
from headrace_broker.core.queue.command.command import ACCEPT, Settle, SettleItem
from headrace_broker.core.queue.messages.batch_sizes import BatchSizes
from headrace_broker.core.queue.messages.effect import Acquired, Enqueued
from headrace_broker.model import build_info
from headrace_broker.model.message import Publish
from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.message import APPEND, Message
from headrace_raftlog.model.ready import Ready

OBJECTS = [
    Entry(1, 1, 0, b""),
    Message(APPEND, 1, 1, 2, 1),
    Ready(1),
    Publish(1, b"", False, False, b"", b""),
    Acked(1, 1, False),
    Method(1, bytes(4)),
    Settle(1, 1, [SettleItem(1, ACCEPT, 1, 1)]),
    BatchSizes(1, 1, b""),
    Acquired(1, 1, 0, 1, 0, 0),
    Enqueued(1, 1),
]


@pytest.mark.skipif(not build_info.compiled(), reason="the interpreter follows all of its objects")
@pytest.mark.parametrize("value", OBJECTS, ids=lambda value: type(value).__name__)
def test_what_comes_and_goes_with_messages_is_not_followed(value: object) -> None:
    assert not gc.is_tracked(value)
