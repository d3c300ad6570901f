"""Options of the source of queues."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from headrace_pipeline.error import OptionError
from headrace_pipeline.options.connection import Connection
from headrace_pipeline.sources.queue.option import QueueOptions, read_options

LEAST = {"endpoints": "broker-0:7672", "queue": "orders", "group": "lake"}


def test_queue_and_group_suffice() -> None:
    options = read_options(LEAST)
    assert options == QueueOptions(Connection("broker-0:7672"), "orders", "lake")
    assert options.where == "group 'lake' on queue 'orders' in vhost '/'"
    assert "headers" not in options.table.names
    assert (options.rows_max, options.bytes_max) == (500_000, 1 << 30)


def test_all_options_are_taken_whatever_their_letter_case(tmp_path: Path) -> None:
    options = read_options(
        LEAST
        | {
            "vhost": "shop",
            "username": "spark",
            "passwordfile": str(tmp_path / "password"),
            "MAXROWSPERTRIGGER": "1000",
            "maxBytesPerTrigger": "2000",
            "minPartitions": "3",
            "includeHeaders": "TRUE",
            "leaseTtlMs": "5000",
            "failOnDataLoss": "false",
        }
    )
    assert options[1:] == ("orders", "lake", 1000, 2000, 3, True, 5000, False)
    assert (options.connection.vhost, options.connection.username) == ("shop", "spark")
    assert "headers" in options.table.names
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize("name", ["endpoints", "queue", "group"])
def test_what_must_be_given_is_missed(name: str) -> None:
    given = {key: value for key, value in LEAST.items() if key != name}
    with pytest.raises(OptionError, match=f"option {name}: headrace_queue needs it"):
        read_options(given)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("maxRowsPerTrigger", "0", "must be a whole number, 1 to 1048576, not '0'"),
        ("maxRowsPerTrigger", "many", "must be a whole number"),
        ("maxBytesPerTrigger", "1g", "must be a whole number"),
        ("minPartitions", "-1", "must be a whole number"),
        ("includeHeaders", "yes", "must be true or false"),
        ("leaseTtlMs", "999", "must be a whole number, 1000 to 86400000"),
        ("failOnDataLoss", "", "must be true or false"),
        ("queue", "", "must not be empty"),
        ("group", "g" * 256, "must have at most 255 bytes"),
        ("startingOffsets", "earliest", "has no places to start from"),
        ("endingOffsets", "latest", "headrace_log reads"),
        ("settle", "afterRead", "use readStream, with trigger"),
        ("password", "secret", "give its path as passwordFile"),
        ("maxRowPerTrigger", "5", "knows no such option; is maxRowsPerTrigger meant?"),
    ],
)
def test_a_wrong_option_is_told_by_name_with_what_to_do(name: str, value: str, said: str) -> None:
    with pytest.raises(OptionError) as refused:
        read_options(LEAST | {name: value})
    assert refused.value.name.lower() == name.lower()
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)
