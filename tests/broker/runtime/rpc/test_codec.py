"""Values of compiled classes on their way between nodes."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.core.queue.state.archive_effect import (
    ArchiveAnswer,
    ArchiveGroupInfo,
    ArchiveInfo,
)
from headrace_broker.core.queue.state.lease_effect import GroupInfo, LeaseAnswer, LeaseInfo
from headrace_broker.runtime.contract.payload import MALFORMED
from headrace_broker.runtime.rpc.codec import ENCODER, decoder_of

NUMBER = st.integers(0, (1 << 62) - 1)
NAME = st.binary(max_size=20)
STATUS = st.integers(0, 5)
LEASE = st.builds(LeaseInfo, NUMBER, NUMBER, NUMBER, NUMBER, st.lists(NUMBER, max_size=4))
LEASES = st.lists(LEASE, max_size=3)
GROUP = st.builds(GroupInfo, NAME, NUMBER, NUMBER, NUMBER, NUMBER, LEASES)
READER = st.builds(ArchiveGroupInfo, NAME, NUMBER, NUMBER, NUMBER)
SEVEN = [NUMBER] * 7
VALUES = st.one_of(
    LEASE,
    GROUP,
    st.builds(LeaseAnswer, NUMBER, STATUS, st.none() | GROUP, NUMBER, NUMBER, NUMBER, LEASES),
    READER,
    st.builds(ArchiveInfo, *SEVEN, st.lists(READER, max_size=3)),
    st.builds(ArchiveAnswer, NUMBER, STATUS, st.none() | READER, NUMBER, NUMBER),
)


@given(VALUES)
def test_values_arrive_as_they_were(value: Any) -> None:
    found = decoder_of(type(value)).decode(ENCODER.encode(value))
    assert type(found) is type(value)
    assert repr(found) == repr(value)


@given(st.lists(GROUP, max_size=3))
def test_lists_of_them_do_too(groups: list[GroupInfo]) -> None:
    found = decoder_of(list[GroupInfo]).decode(ENCODER.encode(groups))
    assert repr(found) == repr(groups)


@pytest.mark.parametrize(
    "fields",
    [
        None,
        "text",
        [],
        [b"g", 1, 2, 3],
        [b"g", 1, 2, 3, 4, [], 6],
        [b"g", "1", 2, 3, 4, []],
        [b"g", 1, 2, 3, 4, [[1, 2]]],
        [b"g", 1, 2, 3, 4, [[1, 2, 3, 4, ["x"]]]],
        ["g", 1, 2, 3, 4, []],
    ],
)
def test_what_is_no_such_value_is_refused(fields: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        decoder_of(GroupInfo).decode(msgspec.msgpack.encode(fields))


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    with contextlib.suppress(*MALFORMED):
        assert isinstance(decoder_of(LeaseAnswer).decode(data), LeaseAnswer)


def test_numbers_that_are_too_large_are_refused() -> None:
    fields = [b"g", 1 << 63, 2, 3, 4, []]
    try:
        found = decoder_of(GroupInfo).decode(msgspec.msgpack.encode(fields))
    except msgspec.ValidationError:
        return  # compiled
    assert found.epoch == 1 << 63


def test_other_objects_are_not_sent() -> None:
    with pytest.raises(NotImplementedError, match="object is not sent between nodes"):
        ENCODER.encode(object())
