"""Options of the sink."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_pipeline.error import OptionError
from headrace_pipeline.options.option import Options
from headrace_pipeline.sinks.exchange.option import SinkOptions, read_options

BASE = {"endpoints": "b:7672"}


def read(columns: str = "payload", streaming: bool = False, **given: Any) -> SinkOptions:
    return read_options(Options(BASE | given, "headrace"), columns.split(), streaming)


def test_what_is_not_said_has_a_default() -> None:
    found = read(exchange="x")
    assert (found.exchange, found.routing_key, found.on_refused) == ("x", "", "fail")
    assert found.mandatory
    assert found.confirms
    assert found.persistent
    assert (found.publisher_id, found.round) == ("", 0)


def test_what_is_said_counts() -> None:
    found = read(
        RoutingKey="q",
        onrefused="Drop",
        mandatory="false",
        maxInFlight="10",
        maxInFlightBytes="100",
        publisherId="p",
        epoch="4",
        persistent="false",
        giveUpAfterSeconds="5",
    )
    assert (found.routing_key, found.on_refused, found.mandatory) == ("q", "drop", False)
    assert (found.unconfirmed_max, found.unconfirmed_bytes_max) == (10, 100)
    assert (found.publisher_id, found.round, found.persistent) == ("p", 4, False)
    assert found.give_up_after_s == 5.0


@pytest.mark.parametrize(
    "columns", ["payload exchange", "payload routing_key", "payload exchange routing_key"]
)
def test_rows_may_say_where_they_go(columns: str) -> None:
    assert read(columns).exchange == ""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "option exchange: is needed, or option routingKey or a column routing_key"),
        ({"exchange": "x", "epoch": "1"}, "option epoch: belongs to option publisherId"),
        ({"exchange": "x", "onRefused": "ask"}, "option onRefused: must be one of fail, drop"),
        ({"exchange": "x", "maxInFlight": "0"}, "option maxInFlight: must be a whole number"),
        ({"exchange": "x", "password": "p"}, "option password: would stand in query plans"),
        ({"exchange": "x", "exchnage": "y"}, "knows no such option; is exchange meant?"),
        ({"exchange": "x", "publisherId": "é" * 101}, "must have at most 200 bytes"),
        (
            {"exchange": "x", "confirms": "false", "mandatory": "false", "publisherId": "p"},
            "option publisherId: needs confirms",
        ),
        ({"exchange": "x", "confirms": "false"}, "option onRefused: must be drop, or mandatory"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError) as caught:
        read(**given)
    assert told in str(caught.value)


def test_the_epoch_of_a_stream_is_its_batch() -> None:
    with pytest.raises(OptionError, match="option epoch: belongs to batch writes"):
        read(streaming=True, exchange="x", publisherId="p", epoch="1")
