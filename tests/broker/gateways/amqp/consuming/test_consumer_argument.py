"""Arguments of basic.consume."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands, decode

from headrace_broker.gateways.consuming import consumer_argument
from headrace_broker.model.limits import (
    CONSUMER_TIMEOUT_MS_MAX,
    UNKNOWN_ARGUMENTS_BYTES_MAX,
    UNKNOWN_ARGUMENTS_TOLD_MAX,
)
from headrace_broker.runtime.routing.unknown_arguments import UnknownArguments

Consume = commands.Basic.Consume


def attached(broker, peer, arguments, no_ack=False):
    """Return the command by which the client's consumer attached."""
    consume = Consume(queue="q", consumer_tag="c", no_ack=no_ack, arguments=arguments)
    assert peer.call(1, consume)[0][1].name == "Basic.ConsumeOk"
    return broker.clients[-1].attachments[-1]


def test_without_arguments_everything_is_as_the_queue_says(broker, queue, peer):
    found = attached(broker, peer, {})
    assert (found.tag, found.priority, found.prefetch_bytes) == ("c", 0, 0)
    assert (found.timeout_ms, found.filter_table) == (0, b"")


def test_numbers_reach_the_queue(broker, queue, peer):
    arguments = {"x-priority": -5, "x-prefetch-bytes": 1 << 20, "x-consumer-timeout": 60_000}
    found = attached(broker, peer, arguments)
    assert (found.priority, found.prefetch_bytes, found.timeout_ms) == (-5, 1 << 20, 60_000)


def test_bytes_mean_nothing_to_a_consumer_that_does_not_acknowledge(broker, queue, peer):
    assert attached(broker, peer, {"x-prefetch-bytes": 5}, no_ack=True).prefetch_bytes == 0


def test_what_was_meant_for_mirrored_queues_is_taken(broker, queue, peer):
    found = attached(broker, peer, {"x-cancel-on-ha-failover": True})
    assert (found.tag, found.priority) == ("c", 0)


@pytest.mark.parametrize("value", ["a = 1 AND b > 2", {"color": "red", "size": 3}])
def test_filter_reaches_the_queue_as_a_table(broker, queue, peer, value):
    found = attached(broker, peer, {"x-filter": value})
    assert decode.field_table(found.filter_table)[1] == {"x-filter": value}


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("x-priority", "high", "expected integer, got longstr"),
        ("x-priority", True, "expected integer, got bool"),
        ("x-priority", 1 << 31, "2147483648 is not within"),
        ("x-prefetch-bytes", -1, "-1 is not within 0 and 4294967295"),
        ("x-prefetch-bytes", 1.5, "expected integer, got double"),
        ("x-consumer-timeout", -1, "-1 is not within"),
        ("x-consumer-timeout", CONSUMER_TIMEOUT_MS_MAX + 1, "is not within"),
        ("x-consumer-timeout", None, "expected integer, got void"),
        ("x-cancel-on-ha-failover", 1, "expected bool, got signedint"),
    ],
)
def test_bad_argument_is_refused_by_name_and_nothing_is_begun(
    broker, queue, peer, name, value, problem
):
    close = peer.ask(1, Consume(queue="q", arguments={name: value}))
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, 20)
    where = f"invalid arg '{name}' for consumer of queue 'q' in vhost '/': "
    assert close.reply_text.startswith(f"PRECONDITION_FAILED - {where}")
    assert problem in close.reply_text
    assert broker.clients == []


def test_unknown_arguments_are_taken_listed_and_told_once(queue, peer, caplog, monkeypatch):
    monkeypatch.setattr(consumer_argument, "UNKNOWN_ARGUMENTS", UnknownArguments())
    arguments: Any = {"x-stream-offset": "first", "colour": "red", "x-priority": 3}
    for _ in range(2):
        assert peer.ask(1, Consume(queue="q", arguments=arguments)).name == "Basic.ConsumeOk"
    [status] = peer.info.control.channels(0)
    assert [consumer.arguments for consumer in status.consumers] == [arguments] * 2
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "consumer of queue 'q' in vhost '/' has the argument 'colour'" in told[0]
    assert "'x-stream-offset'" in told[1]


def test_unknown_arguments_have_a_size(queue, peer):
    arguments: Any = {"colour": "v" * UNKNOWN_ARGUMENTS_BYTES_MAX}
    close = peer.ask(1, Consume(queue="q", arguments=arguments))
    assert close.reply_code == 406
    assert f"more than {UNKNOWN_ARGUMENTS_BYTES_MAX}" in close.reply_text


def test_log_ends_with_one_line_where_names_never_do(caplog):
    told = UnknownArguments()
    for number in range(UNKNOWN_ARGUMENTS_TOLD_MAX + 50):
        told.warn("queue", "queue 'q'", [f"x-{number}"])
    assert len(caplog.records) == UNKNOWN_ARGUMENTS_TOLD_MAX + 1
    assert "further ones are not told" in caplog.records[-1].getMessage()
