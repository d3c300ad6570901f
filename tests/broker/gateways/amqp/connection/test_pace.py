"""Pieces that sockets bring in during a turn."""

from __future__ import annotations

from collections.abc import Callable

from headrace_broker.gateways.amqp.connection.pace import Pace
from headrace_broker.model.limits import READ_BYTES_MAX, READ_BYTES_MIN, READ_TURN_BYTES


class Loop:
    """Keeps calls until they are made."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.calls.append(callback)

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def read_on_after_a_turn(loop: Loop, pace: Pace, count: int) -> list[int]:
    read: list[int] = []
    for number in range(count):
        pace.wait(lambda at=number: read.append(at))  # type: ignore[misc]
    assert read == []
    assert len(loop.calls) == 1
    loop.turn()
    return read


def test_sockets_with_more_read_on_in_the_next_turn_each_once() -> None:
    loop = Loop()
    pace = Pace(loop.call_soon)
    assert read_on_after_a_turn(loop, pace, 3) == [0, 1, 2]
    assert loop.calls == []
    assert read_on_after_a_turn(loop, pace, 2) == [0, 1]


def test_the_piece_is_smaller_the_more_sockets_have_more() -> None:
    loop = Loop()
    pace = Pace(loop.call_soon)
    assert pace.piece == READ_BYTES_MAX == len(pace.view)
    read_on_after_a_turn(loop, pace, 200)
    assert pace.piece == READ_TURN_BYTES // 200
    read_on_after_a_turn(loop, pace, 100_000)
    assert pace.piece == READ_BYTES_MIN
    read_on_after_a_turn(loop, pace, 1)
    assert pace.piece == READ_BYTES_MAX
