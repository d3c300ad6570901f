"""Sessions that copy in turns."""

from __future__ import annotations

from collections.abc import Callable

from headrace_broker.runtime.contract.lane_port import Copying
from headrace_broker.runtime.session.turns import CopyTurns


class Work(Copying):
    """Copies so many pieces."""

    def __init__(self, name: str, pieces: int, done: list[str]) -> None:
        self.name = name
        self.pieces = pieces
        self.done = done

    def copy_some(self) -> bool:
        self.done.append(self.name)
        self.pieces -= 1
        return self.pieces > 0


def test_each_turn_copies_a_piece_and_all_have_theirs() -> None:
    calls: list[Callable[[], None]] = []
    turns = CopyTurns(calls.append)
    done: list[str] = []
    turns.add(Work("a", 3, done))
    turns.add(Work("b", 1, done))
    while calls:
        (call,) = calls
        calls.clear()
        before = len(done)
        call()
        assert len(done) == before + 1
    assert done == ["a", "b", "a", "a"]
    turns.add(Work("c", 1, done))
    assert len(calls) == 1
