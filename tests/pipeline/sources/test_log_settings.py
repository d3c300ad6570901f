"""Each option of `headrace_log`, right and wrong."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from headrace_pipeline.error import OptionError
from headrace_pipeline.schema.log import LOGS
from headrace_pipeline.sources.log.settings import (
    EARLIEST,
    LATEST,
    Start,
    check_batch,
    check_stream,
    read_settings,
)

REQUIRED = {"endpoints": "n1:7672", "log": "archive"}


def test_what_is_not_said_is_as_with_kafka() -> None:
    found = read_settings(REQUIRED)
    assert found.queues == ("*",)
    assert (found.start, found.end) == (Start(LATEST), Start(LATEST))
    assert (found.rows_max, found.bytes_max, found.partitions_min) == (0, 0, 0)
    assert (found.fail_on_data_loss, found.group, found.include_headers) == (True, "", False)
    assert check_batch(found, REQUIRED).start == Start(EARLIEST)
    latest = REQUIRED | {"startingOffsets": "latest"}
    assert check_batch(read_settings(latest), latest).start == Start(LATEST)


def test_all_options_are_read_and_nothing_secret_is_kept() -> None:
    given = {
        "endpoints": "a,b:1",
        "LOG": "Archive",
        "queue": "orders.*, paid",
        "vhost": "shop",
        "startingoffsets": '{"1": 5, "2": [7, 9], "3": "latest", "4": "earliest"}',
        "maxRowsPerTrigger": "10",
        "maxBytesPerTrigger": "20",
        "minPartitions": "3",
        "failOnDataLoss": "FALSE",
        "group": "lake",
        "includeHeaders": "true",
        "username": "reader",
        "passwordFile": "/nowhere/secret",
        "checkpointLocation": "/tmp/c",
    }
    found = read_settings(given)
    assert (found.connection.vhost, found.connection.username) == ("shop", "reader")
    assert found.queues == ("orders.*", "paid")
    shards = {"1": (0, 5), "2": (7, 9), "3": (0, -1), "4": (0, -2)}
    assert found.start == Start(EARLIEST, shards)
    assert (found.rows_max, found.bytes_max, found.partitions_min) == (10, 20, 3)
    assert (found.fail_on_data_loss, found.group, found.include_headers) == (False, "lake", True)
    assert pickle.loads(pickle.dumps(found)) == found


def test_an_offset_of_a_checkpoint_says_where_to_begin() -> None:
    offset = {"version": 1, "log": "archive", "shards": {"1": [7, 9, {"from": 3}]}}
    found = read_settings(REQUIRED | {"startingOffsets": json.dumps(offset)})
    assert found.start.shards == {"1": (7, 9)}


@pytest.mark.parametrize("name", sorted(LOGS))
def test_each_log_has_its_table_and_headers_only_where_they_are_wanted(name: str) -> None:
    found = read_settings({"endpoints": "n1", "log": name})
    assert found.table.names == LOGS[name].without("headers").names
    assert found.is_archive == (name == "archive")


def test_patterns_match_queues_as_a_whole_and_names_are_told_apart() -> None:
    found = read_settings(REQUIRED | {"queue": "orders.*,a?c,x[1],exact"})
    wanted = ["orders.", "orders.in.eu", "abc", "x[1]", "exact"]
    assert [each for each in wanted if not found.wants(each)] == []
    unwanted = ["orders", "my.orders.in", "ac", "x1", "exactly"]
    assert [each for each in unwanted if found.wants(each)] == []
    assert found.named == ("x[1]", "exact")


WRONG: list[tuple[dict[str, str], str]] = [
    ({"log": "samples"}, "option log: must be one of archive, "),
    ({"log": ""}, "option log: must not be empty"),
    ({"endpoints": ""}, "option endpoints: must not be empty"),
    ({"password": "x"}, "option password: would stand in query plans"),
    ({"queue": "a,,b"}, "option queue: must be names, or patterns"),
    ({"log": "flow_samples", "queue": "a"}, "option queue: only the log archive"),
    ({"log": "flow_samples", "includeHeaders": "true"}, "option includeHeaders: only the log"),
    ({"group": "x" * 256}, "option group: must have at most 255 bytes"),
    ({"startingOffsets": "first"}, "option startingOffsets: must be earliest, latest or JSON"),
    ({"startingOffsets": "[1]"}, "option startingOffsets: must be earliest, latest or JSON"),
    ({"startingOffsets": '{"1": -5}'}, "option startingOffsets: .*; 1 has -5"),
    ({"startingOffsets": '{"1": true}'}, "option startingOffsets: .*; 1 has True"),
    ({"startingOffsets": '{"1": [4]}'}, r"option startingOffsets: .*; 1 has \[4\]"),
    ({"endingOffsets": '{"1": "soon"}'}, "option endingOffsets: .*; 1 has 'soon'"),
    (
        {"startingTimestamp": "5", "startingOffsets": "latest"},
        "option startingOffsets: cannot be given together with startingTimestamp",
    ),
    ({"startingTimestamp": "yesterday"}, "option startingTimestamp: must be a whole number"),
    ({"maxRowsPerTrigger": "-1"}, "option maxRowsPerTrigger: must be a whole number, 0 to"),
    ({"minPartitions": "1000000"}, "option minPartitions: must be a whole number, 0 to"),
    ({"failOnDataLoss": "yes"}, "option failOnDataLoss: must be true or false, not 'yes'"),
    ({"maxrows": "1"}, "option maxrows: headrace_log knows no such option"),
    ({"startingOfsets": "latest"}, "is startingOffsets meant?"),
]


@pytest.mark.parametrize(("given", "text"), WRONG)
def test_a_wrong_option_is_named_with_what_it_must_be(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        read_settings(REQUIRED | given)


@pytest.mark.parametrize("name", ["endpoints", "log"])
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name}: headrace_log needs it"):
        read_settings({key: value for key, value in REQUIRED.items() if key != name})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"maxRowsPerTrigger": "5"}, "maxRowsPerTrigger: is for streams"),
        ({"maxBytesPerTrigger": "5"}, "maxBytesPerTrigger: is for streams"),
        ({"group": "lake"}, "group: is for streams"),
        ({"endingOffsets": "earliest"}, "endingOffsets: must be latest or JSON"),
        ({"endingOffsets": '{"1": "earliest"}'}, "endingOffsets: must be latest or JSON"),
    ],
)
def test_a_batch_refuses_what_is_for_streams(given: dict[str, Any], text: str) -> None:
    options = REQUIRED | given
    with pytest.raises(OptionError, match=text):
        check_batch(read_settings(options), options)


def test_a_stream_refuses_what_is_for_batches() -> None:
    with pytest.raises(OptionError, match="endingOffsets: is for batches"):
        check_stream(REQUIRED | {"endingOffsets": "latest"})
