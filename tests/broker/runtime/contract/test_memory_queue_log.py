"""The log of an unreplicated queue: order, turns and bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.model.limits import MEMORY_LOG_BYTES_MAX, MEMORY_LOG_TURN_BYTES
from headrace_broker.runtime.contract.queue_log import BUSY, TAKEN, MemoryQueueLog

LARGE = MEMORY_LOG_TURN_BYTES // 4


class Loop:
    """Makes calls in turns."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.calls.append(callback)

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class Log:
    """A log and its applied entries."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.log = MemoryQueueLog(1, cast(Any, self.loop))
        self.applied: list[bytes] = []
        self.log.apply = self._apply

    def _apply(self, index: int, data: bytes) -> None:
        assert self.log.entry_at_hand(index, print) == data
        self.applied.append(data)
        assert index == len(self.applied)
        self.log.forget(index)

    def finish(self) -> None:
        while self.loop.calls:
            self.loop.turn()


def test_what_does_not_wait_is_applied_in_the_order_it_came() -> None:
    log = Log()
    assert log.log.propose(b"publish", False) == TAKEN
    assert log.log.propose(b"get", True) == TAKEN
    assert log.applied == []
    log.loop.turn()
    assert log.applied == [b"publish", b"get"]
    assert log.loop.calls == []


def test_a_turn_applies_so_much_and_what_is_urgent_passes_what_waits() -> None:
    log = Log()
    for number in range(10):
        log.log.propose(b"%d" % number + bytes(LARGE), False)
    log.log.propose(b"settle", True)
    log.log.propose(b"settle too", True)
    log.loop.turn()
    assert [data[:1] for data in log.applied] == [b"0", b"1", b"2"]
    log.loop.turn()
    assert log.applied[3:5] == [b"settle", b"settle too"]
    log.finish()
    assert [data[:1] for data in log.applied[5:]] == [b"3", b"4", b"5", b"6", b"7", b"8", b"9"]


def test_beyond_its_bound_it_is_busy_and_for_settles_later() -> None:
    log = Log()
    taken = 0
    while log.log.propose(bytes(LARGE), False) == TAKEN:
        taken += 1
    assert (taken - 4) * LARGE <= MEMORY_LOG_BYTES_MAX
    assert log.log.propose(bytes(LARGE), True) == TAKEN
    log.finish()
    assert len(log.applied) == taken + 1
    assert log.log.propose(bytes(LARGE), False) == TAKEN


def test_a_command_larger_than_a_turn_is_applied_alone() -> None:
    log = Log()
    huge = bytes(3 * MEMORY_LOG_TURN_BYTES)
    assert [log.log.propose(huge, False) for _ in range(2)] == [TAKEN, TAKEN]
    log.loop.turn()
    assert len(log.applied) == 1
    log.loop.turn()
    assert len(log.applied) == 2


def test_what_is_proposed_while_it_applies_comes_in_a_later_turn() -> None:
    log = Log()
    first = log.log.apply
    assert first is not None

    def again(index: int, data: bytes) -> None:
        first(index, data)
        if len(log.applied) < 3:
            log.log.propose(b"next", True)

    log.log.apply = again
    log.log.propose(b"one", False)
    log.loop.turn()
    assert log.applied == [b"one"]
    log.finish()
    assert log.applied == [b"one", b"next", b"next"]


@given(
    st.lists(
        st.tuples(st.sampled_from(["normal", "urgent", "turn"]), st.integers(0, 2 * LARGE)),
        max_size=60,
    )
)
def test_each_kind_keeps_its_order_and_nothing_that_was_taken_is_lost(
    steps: list[tuple[str, int]],
) -> None:
    log = Log()
    taken: dict[str, list[bytes]] = {"normal": [], "urgent": []}
    for number, (what, size) in enumerate(steps):
        if what == "turn":
            log.loop.turn()
            continue
        data = what.encode() + b"%6d" % number + bytes(size)
        outcome = log.log.propose(data, what == "urgent")
        assert outcome in (TAKEN, BUSY)
        if outcome == TAKEN:
            taken[what].append(data)
    log.finish()
    for what, expected in taken.items():
        assert [data for data in log.applied if data.startswith(what.encode())] == expected
