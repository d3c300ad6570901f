"""Commands that are copied in steps, and stamped in place."""

from __future__ import annotations

import tracemalloc

from headrace_broker.codecs.batch import encode_batch, single_head
from headrace_broker.core.queue.command.command import enqueue_head, stamp_command, stamp_of
from headrace_broker.core.queue.command.large_command import LargeCommand
from headrace_broker.model.limits import LARGE_BYTES
from headrace_broker.model.message import Publish
from headrace_raftlog.model.pieces import Assembly

BODY = bytes(range(256)) * (8 * LARGE_BYTES // 256)
PUBLISH = Publish(1, b"\x00\x04work", False, False, b"\x10\x00\x02", BODY)
WHOLE = encode_batch([PUBLISH], enqueue_head(7, 3, True))


def a_command() -> LargeCommand:
    return LargeCommand([enqueue_head(7, 3, True) + single_head(PUBLISH), BODY, b""])


def test_pieces_are_the_command_and_the_body_is_not_copied() -> None:
    command = a_command()
    assert b"".join(command.pieces()) == WHOLE
    assert any(piece is BODY for piece in command.pieces())
    assert (command.size, command.head) == (len(WHOLE), WHOLE[: len(command.head)])


def test_command_is_copied_in_steps_and_stamped_in_place() -> None:
    command = a_command()
    command.copy(0)
    tracemalloc.start()
    try:
        for _ in range(8):
            assert not command.assembled
            command.copy(LARGE_BYTES)
        command.copy(LARGE_BYTES)
        assert command.assembled
        first = command.stamped(5)
        assert tracemalloc.get_traced_memory()[1] < LARGE_BYTES // 4
    finally:
        tracemalloc.stop()
    assert first == stamp_command(5, WHOLE)


def test_stamp_does_not_change_what_the_log_has() -> None:
    command = a_command()
    first = command.stamped(5)
    second = command.stamped(6)
    assert (stamp_of(first), stamp_of(second)) == (5, 6)
    assert first[8:] == second[8:] == WHOLE


def test_command_that_was_assembled_leaves_in_one_uncopied_piece() -> None:
    command = a_command()
    command.copy(2 * LARGE_BYTES)
    (piece,) = command.pieces()
    assert piece == WHOLE
    data = command.stamped(9)
    (piece,) = command.pieces()
    assert isinstance(piece, memoryview)
    assert piece.obj is data


def test_command_that_arrived_is_stamped_where_it_was_put_together() -> None:
    tail = Assembly(len(WHOLE), 8)
    tail.add(WHOLE)
    command = LargeCommand([], tail)
    assert command.assembled
    assert (command.size, command.head) == (len(WHOLE), WHOLE[: len(command.head)])
    assert command.stamped(5) == stamp_command(5, WHOLE)
