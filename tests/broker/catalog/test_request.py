"""A change that was sent twice is made once."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import encode_request
from headrace_broker.catalog.request import (
    Request,
    RequestTable,
    SeenRequests,
    decode_envelope,
    encode_envelope,
)
from headrace_broker.catalog.result import NotFound, Ok, Refused, Repeated
from headrace_broker.model.limits import CATALOG_REQUEST_WINDOW


@given(
    st.builds(Request, st.integers(1, 1023), st.integers(0, 2**32 - 1), st.integers(1, 2**64 - 1)),
    st.binary(max_size=20),
)
def test_envelope_keeps_the_identity(request: Request, command: bytes) -> None:
    assert decode_envelope(encode_envelope(request, command)) == request


def test_what_is_no_envelope_has_no_identity() -> None:
    good = encode_envelope(Request(1, 1, 1), b"")
    assert decode_envelope(good[:-1]) is None
    assert decode_envelope(b"\x02" + good[1:]) is None
    assert decode_envelope(encode_envelope(Request(0, 1, 1), b"")) is None
    assert decode_envelope(encode_envelope(Request(1024, 1, 1), b"")) is None
    assert decode_envelope(encode_envelope(Request(1, 1, 0), b"")) is None


def test_repeated_change_is_made_once(driver: Any) -> None:
    declare = encode_request(Request(2, 1, 1), commands.DeclareQueue("/", "q", "classic"))
    assert isinstance(driver.apply(declare), Ok)
    driver.apply(encode_request(Request(2, 1, 2), commands.DeleteQueue("/", "q")))
    assert driver.apply(declare) == Repeated()
    assert driver.catalog.queue("/", "q") is None


def test_refused_bytes_count_as_seen(driver: Any) -> None:
    assert isinstance(driver.apply(encode_envelope(Request(2, 1, 1), b"\xc1")), Refused)
    assert driver.apply(encode_envelope(Request(2, 1, 1), b"\xc1")) == Repeated()


def test_earlier_boot_is_refused_and_a_later_one_starts_anew(driver: Any) -> None:
    def delete(boot: int, number: int) -> bytes:
        return encode_request(Request(2, boot, number), commands.DeleteQueue("/", "q"))

    assert isinstance(driver.apply(delete(1, 5)), NotFound)
    assert isinstance(driver.apply(delete(2, 5)), NotFound)
    assert driver.apply(delete(1, 6)) == Repeated()
    assert driver.apply(delete(2, 5)) == Repeated()


def test_nodes_do_not_share_numbers() -> None:
    table = RequestTable()
    assert table.admit(Request(1, 1, 1))
    assert table.admit(Request(2, 1, 1))
    assert not table.admit(Request(1, 1, 1))


@given(st.lists(st.integers(1, 40), max_size=120))
def test_within_the_window_each_number_is_admitted_once(numbers: list[int]) -> None:
    seen = SeenRequests(boot=1)
    met: set[int] = set()
    for number in numbers:
        assert seen.admit(number) == (number not in met)
        met.add(number)
        assert seen.above == sorted(met - set(range(1, seen.floor + 1)))


def test_memory_is_bounded_and_what_is_too_old_is_not_admitted() -> None:
    seen = SeenRequests(boot=1)
    for number in range(2, 3 * CATALOG_REQUEST_WINDOW, 2):
        assert seen.admit(number)
        assert len(seen.above) <= CATALOG_REQUEST_WINDOW
    assert not seen.admit(1)
    assert not seen.admit(3)
    assert seen.admit(3 * CATALOG_REQUEST_WINDOW - 3)
