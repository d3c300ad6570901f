"""Which leases are in a batch, and which task reads what; offsets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_client.lease_value import EXPIRED, HELD, LeaseState
from headrace_pipeline.error import PipelineError
from headrace_pipeline.sources.queue.offset import QueueOffset, read_offset
from headrace_pipeline.sources.queue.plan import Part, Room, admit, divide

ROOM = Room(100, 1000)


def held(number: int, messages: int, byte_count: int = 0) -> LeaseState:
    return LeaseState(number, HELD, messages, byte_count)


def gone(number: int, messages: int = 10) -> LeaseState:
    return LeaseState(number, EXPIRED, messages, 0, ((1, messages),))


@pytest.mark.parametrize(
    ("leases", "start", "expected"),
    [
        ([], 7, (7, ROOM)),
        ([held(7, 10), held(8, 20, 300)], 7, (8, Room(80, 700))),
        ([held(8, 20), held(9, 80)], 7, (9, Room(0, 1000))),
        ([held(8, 20), held(9, 81)], 7, (8, Room(0, 0))),
        ([held(8, 500)], 7, (8, Room(-400, 1000))),  # one at least, for a lease is whole
        ([held(8, 500), held(9, 1)], 7, (8, Room(0, 0))),
        ([held(8, 5, 1001), held(9, 5)], 7, (8, Room(0, 0))),
        ([gone(8, 500), held(9, 30), gone(10)], 7, (10, Room(70, 1000))),
    ],
)
def test_leases_that_are_there_are_admitted_whole(leases: Any, start: int, expected: Any) -> None:
    assert admit(leases, start, ROOM) == expected


def test_what_was_leased_for_a_batch_is_admitted_to_it_again() -> None:
    """The last message of a lease may exceed its bytes."""
    leases = [held(1, 40, 990), held(2, 5, 400)]
    end, room = admit(leases, 0, ROOM)
    assert (end, room.is_left) == (2, False)


def test_parts_are_about_as_large_as_each_other() -> None:
    leases = [held(1, 10), held(2, 3), held(3, 1)]
    assert divide(leases, 0) == [Part(1, 0, 10), Part(2, 0, 3), Part(3, 0, 1)]
    assert divide(leases, 4) == [
        Part(1, 0, 2),
        Part(1, 2, 3),
        Part(1, 5, 2),
        Part(1, 7, 3),
        Part(2, 0, 3),
        Part(3, 0, 1),
    ]
    assert divide([], 4) == []


@given(st.lists(st.integers(1, 500), max_size=8), st.integers(0, 40))
def test_parts_cover_each_message_once_and_are_as_many_as_wanted(
    sizes: list[int], least: int
) -> None:
    parts = divide([held(number, size) for number, size in enumerate(sizes, 1)], least)
    read = [
        (part.lease, at) for part in parts for at in range(part.offset, part.offset + part.messages)
    ]
    wanted = [(number, at) for number, size in enumerate(sizes, 1) for at in range(size)]
    assert read == wanted
    assert all(part.messages for part in parts)
    assert len(parts) >= min(least, len(wanted))


def test_an_offset_survives_spark_and_is_small() -> None:
    offset = QueueOffset("orders", "lake", 123_456)
    text = json.dumps(offset.to_json())
    assert text == '{"version": 1, "queue": "orders", "group": "lake", "lease": 123456}'
    assert read_offset(json.loads(text), "orders", "lake") == offset


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version 2, and this release knows version 1"),
        ({"queue": "other"}, "is of group 'lake' on queue 'other', and group 'lake' on queue 'q'"),
        ({"group": "other"}, "give this one its own checkpoint location"),
    ],
)
def test_an_offset_of_something_else_is_refused(change: Any, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        read_offset(QueueOffset("q", "lake", 1).to_json() | change, "q", "lake")
