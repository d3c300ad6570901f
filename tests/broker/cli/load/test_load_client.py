"""Messages as a command line says them, and as it prints them."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import msgspec
import pytest
from aiormq import exceptions

from headrace_broker.cli.load.amqp import failure
from headrace_broker.cli.load.load_client import Taken, json_line, properties_of, text_line


def test_properties_have_the_types_of_amqp() -> None:
    given = ["message_id=007", "priority=3", "expiration=60000", "type=a=b", "timestamp=0"]
    assert properties_of(given) == {
        "message_id": "007",
        "priority": 3,
        "expiration": 60000,
        "type": "a=b",
        "timestamp": datetime(1970, 1, 1, tzinfo=UTC),
    }
    assert properties_of(["timestamp=2026-01-31T12:00:00Z"]) == {
        "timestamp": datetime(2026, 1, 31, 12, tzinfo=UTC)
    }


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("priority", "'priority' must be KEY=VALUE"),
        ("priority=256", "priority: must be a whole number from 0 to 255, not '256'"),
        ("priority=high", "priority: must be a whole number from 0 to 255, not 'high'"),
        ("expiration=-1", "expiration: must be a whole number from 0 to 4294967295, not '-1'"),
        ("timestamp=soon", "timestamp: must be seconds since 1970, or a time as"),
        ("timestamp=99999999999999999999", "timestamp: must be seconds since 1970"),
        ("header=x", "'header' is none of app_id, cluster_id"),
    ],
)
def test_a_property_that_cannot_be_is_refused(given: str, text: str) -> None:
    with pytest.raises(click.BadParameter, match="^" + text.replace("(", r"\(")):
        properties_of([given])


def test_a_body_that_is_no_text_is_printed_all_the_same() -> None:
    taken = Taken(b"\xff", "x", "k", True, {"timestamp": datetime(1970, 1, 1, tzinfo=UTC)})
    assert text_line(taken) == "\\xff"
    assert msgspec.json.decode(json_line(taken)) == {
        "exchange": "x",
        "routing_key": "k",
        "redelivered": True,
        "properties": {"timestamp": "1970-01-01T00:00:00Z"},
        "body": "/w==",
        "encoding": "base64",
    }
    assert msgspec.json.decode(json_line(Taken(b"a", "", "", False, {})))["body"] == "a"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (exceptions.ChannelNotFoundEntity("x"), 3),
        (exceptions.ChannelAccessRefused("x"), 4),
        (exceptions.ProbableAuthenticationError("x"), 4),
        (exceptions.ConnectionNotAllowed("x"), 4),
        (exceptions.ChannelPreconditionFailed("x"), 1),
        (exceptions.AMQPConnectionError("x"), 5),
        (ConnectionRefusedError("x"), 5),
    ],
)
def test_an_error_of_amqp_has_an_exit_code(error: Exception, code: int) -> None:
    assert failure(error) == (str(error), code)
