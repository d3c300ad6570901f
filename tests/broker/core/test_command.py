from __future__ import annotations

import pytest
from tests.broker.core.conftest import ANNA, batch

from headrace_broker.core import command
from headrace_broker.core.command import (
    ENQUEUE_BATCH_OFFSET,
    Attach,
    Cancel,
    Close,
    Enqueue,
    Get,
    Malformed,
    NodeDown,
    Purge,
    Settle,
    SettleItem,
    stamp_command,
)
from headrace_broker.core.command_decoder import decode_command

U32_MAX = 2**32 - 1

COMMANDS = {
    "enqueue": command.encode_enqueue(ANNA, 7, batch(b"a", b"bc")),
    "settle": command.encode_settle(ANNA, 7, [SettleItem(0, 1, 1, 1), SettleItem(3, 4, 2, 2**62)]),
    "settle nothing": command.encode_settle(ANNA, 7, []),
    "attach": command.encode_attach(ANNA, 7, U32_MAX, 5, True, b"tag"),
    "cancel": command.encode_cancel(ANNA, 7, 3),
    "get": command.encode_get(ANNA, 7),
    "purge": command.encode_purge(ANNA, 7),
    "close": command.encode_close(ANNA),
    "node down": command.encode_node_down(1023, U32_MAX),
}


def decoded(name: str) -> command.Command:
    return decode_command(stamp_command(1, COMMANDS[name]))


def test_enqueue_comes_back_with_the_sizes_of_its_bodies() -> None:
    found = decoded("enqueue")
    assert isinstance(found, Enqueue)
    assert (found.session, found.seq, found.sizes.count) == (ANNA, 7, 2)
    assert [found.sizes.octets(position) for position in range(2)] == [1, 2]


def test_the_batch_stands_at_its_fixed_offset() -> None:
    assert stamp_command(1, COMMANDS["enqueue"])[ENQUEUE_BATCH_OFFSET:] == batch(b"a", b"bc")


def test_the_stamp_is_the_first_eight_octets() -> None:
    assert stamp_command(0x0102030405060708, b"x") == bytes([1, 2, 3, 4, 5, 6, 7, 8]) + b"x"


def test_settle_comes_back_item_by_item() -> None:
    found = decoded("settle")
    assert isinstance(found, Settle)
    assert (found.session, found.seq) == (ANNA, 7)
    items = [(item.consumer, item.operation, item.first, item.last) for item in found.items]
    assert items == [(0, 1, 1, 1), (3, 4, 2, 2**62)]


def test_attach_comes_back_with_all_its_fields() -> None:
    found = decoded("attach")
    assert isinstance(found, Attach)
    fields = (found.consumer, found.prefetch, found.exclusive, found.tag)
    assert fields == (U32_MAX, 5, True, b"tag")


def test_the_other_commands_come_back_as_they_are() -> None:
    cancel, get, purge, close = map(decoded, ["cancel", "get", "purge", "close"])
    assert isinstance(cancel, Cancel)
    assert cancel.consumer == 3
    assert isinstance(get, Get)
    assert isinstance(purge, Purge)
    assert isinstance(close, Close)
    assert close.session == ANNA
    down = decoded("node down")
    assert isinstance(down, NodeDown)
    assert (down.node, down.boot_keep) == (1023, U32_MAX)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_cut_short_anywhere_is_malformed(name: str) -> None:
    data = stamp_command(1, COMMANDS[name])
    for length in range(len(data)):
        assert isinstance(decode_command(data[:length]), Malformed), length


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_with_an_octet_too_many_is_malformed(name: str) -> None:
    # An ENQUEUE ends with the last body: its batch says where.
    assert isinstance(decode_command(stamp_command(1, COMMANDS[name] + b"\x00")), Malformed)


@pytest.mark.parametrize("name", COMMANDS)
def test_another_version_or_kind_is_malformed(name: str) -> None:
    encoded = COMMANDS[name]
    for head in (
        b"\x00\x01",
        b"\x09\x01",
        b"\xff\x01",
        encoded[:1] + b"\x00",
        encoded[:1] + b"\x02",
    ):
        found = decode_command(stamp_command(1, head + encoded[2:]))
        assert isinstance(found, Malformed)
        assert "unknown command" in found.reason


@pytest.mark.parametrize(
    "encoded",
    [
        command.encode_enqueue(0, 1, batch(b"a")),
        command.encode_enqueue(ANNA, 0, batch(b"a")),
        command.encode_enqueue(ANNA, 2**62, batch(b"a")),
        command.encode_enqueue(-1, 1, batch(b"a")),
        command.encode_close(2**62),
        command.encode_attach(ANNA, 1, 0, 1, False, b""),
        command.encode_attach(ANNA, 1, 1, 0, False, b""),
        command.encode_settle(ANNA, 1, [SettleItem(1, 0, 1, 1)]),
        command.encode_settle(ANNA, 1, [SettleItem(1, 5, 1, 1)]),
        command.encode_settle(ANNA, 1, [SettleItem(1, 1, 2, 1)]),
        command.encode_settle(ANNA, 1, [SettleItem(1, 1, 1, -1)]),
    ],
)
def test_numbers_out_of_range_are_malformed(encoded: bytes) -> None:
    assert isinstance(decode_command(stamp_command(1, encoded)), Malformed)


def test_an_unknown_flag_of_attach_is_malformed() -> None:
    encoded = bytearray(command.encode_attach(ANNA, 1, 1, 1, True, b""))
    encoded[26] = 2
    assert isinstance(decode_command(stamp_command(1, bytes(encoded))), Malformed)


def test_a_tag_that_is_no_short_string_is_refused() -> None:
    command.encode_attach(ANNA, 1, 1, 1, False, bytes(255))
    with pytest.raises(ValueError, match="256 octets, at most 255"):
        command.encode_attach(ANNA, 1, 1, 1, False, bytes(256))


def test_control_commands_pass_publishes_and_what_forgets_sessions_does_not():
    passing = (
        command.encode_settle(1, 1, []),
        command.encode_attach(1, 1, 1, 1, False, b""),
        command.encode_cancel(1, 1, 1),
        command.encode_get(1, 1),
        command.encode_purge(1, 1),
    )
    waiting = (
        command.encode_enqueue(1, 1, batch(b"x")),
        command.encode_close(1),
        command.encode_node_down(1, 0),
        command.encode_node_down(1, 2),
        b"",
        b"\xff",
    )
    assert [command.passes_publishes(each) for each in passing] == [True] * len(passing)
    assert [command.passes_publishes(each) for each in waiting] == [False] * len(waiting)
