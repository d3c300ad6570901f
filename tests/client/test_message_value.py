"""Values read from messages by the names and annotations of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from headrace_client.definition import DeclaredQueue, Queue, QueueCounts, Vhost
from headrace_client.flow_value import Explanation, Windows
from headrace_client.message_value import read_value
from headrace_client.value import encode_table
from headrace_protos.broker.v1 import flow_pb2, topology_pb2


class Named(NamedTuple):
    name: str
    title: str


@dataclass(frozen=True)
class Wrong:
    no_such_field: Mapping[str, Any]


def test_absent_message_and_absent_optional_number_are_none() -> None:
    assert read_value(DeclaredQueue, topology_pb2.DeclareQueueResponse(name="q")).counts is None
    counts = read_value(QueueCounts, topology_pb2.QueueCounts(messages_ready=2, messages_dlx=0))
    assert (counts.messages_delayed, counts.messages_dlx) == (None, 0)


def test_repeated_fields_maps_and_tables_become_tuples_and_dicts() -> None:
    arguments = encode_table({"x-max-length": 5})
    message = topology_pb2.QueueDescription(name="q", members=["a", "b"], arguments=arguments)
    queue = read_value(Queue, message)
    assert (queue.members, queue.arguments, queue.policy) == (("a", "b"), {"x-max-length": 5}, "")
    vhost = read_value(Vhost, topology_pb2.VhostDescription(limits={"max-queues": 3}))
    assert (type(vhost.limits), vhost.limits) == (dict, {"max-queues": 3})


def test_messages_inside_become_values() -> None:
    answer = flow_pb2.WhyResponse()
    answer.stopped.last_1s = 0.5
    answer.stopped_by_limit["credit"].last_10s = 0.25
    answer.causes.add(account="a", share=1.0)
    found = read_value(Explanation, answer)
    assert found.stopped == Windows(last_1s=0.5)
    assert found.stopped_by_limit == {"credit": Windows(last_10s=0.25)}
    assert [(cause.account, cause.share) for cause in found.causes] == [("a", 1.0)]


def test_given_fields_are_not_read() -> None:
    message = topology_pb2.VhostDescription(name="v")
    assert read_value(Named, message, title="t") == Named("v", "t")
    assert read_value(Named, message, name="other", title="t").name == "other"


def test_field_that_the_message_does_not_have_is_an_error() -> None:
    with pytest.raises(AttributeError):
        read_value(Wrong, topology_pb2.VhostDescription())
