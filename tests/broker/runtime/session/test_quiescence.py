"""Pauses after which a session asks again."""

from __future__ import annotations

from headrace_broker.runtime.session.lane import ControlLane, PublishLane
from headrace_broker.runtime.session.quiescence import Quiescence

SESSION = 5
LEADER, NEXT = 1, 2


class Waiting:
    """A session of which one control command is not answered."""

    def __init__(self) -> None:
        self.quiescence = Quiescence()
        self.publishes = PublishLane(SESSION)
        self.controls = ControlLane(SESSION)
        self.controls.add(b"get", None)
        assert not self.tick(LEADER), "it has only been sent"

    def tick(self, target: int) -> bool:
        """Pass a tick."""
        return self.quiescence.is_over(self.publishes, self.controls, False, target)

    def pause(self, target: int = LEADER, busy: bool = False) -> int:
        """Return the ticks until all is sent again, to a leader that refuses it or says nothing."""
        if busy:
            self.quiescence.refused()
        ticks = 1
        while not self.tick(target):
            ticks += 1
        return ticks


def test_silent_leader_is_asked_less_and_less_often() -> None:
    waiting = Waiting()
    assert [waiting.pause() for _ in range(6)] == [4, 8, 16, 32, 32, 32]


def test_next_leader_does_not_pay_for_the_silence_of_the_one_before() -> None:
    waiting = Waiting()
    assert [waiting.pause() for _ in range(4)] == [4, 8, 16, 32]
    assert [waiting.pause(NEXT) for _ in range(2)] == [4, 8]


def test_leader_that_takes_nothing_is_asked_sooner() -> None:
    waiting = Waiting()
    assert [waiting.pause(busy=True) for _ in range(6)] == [1, 2, 4, 8, 8, 8]


def test_leader_that_was_silent_and_refuses_now_is_asked_sooner() -> None:
    waiting = Waiting()
    assert [waiting.pause() for _ in range(3)] == [4, 8, 16]
    assert waiting.pause(busy=True) == 1
    assert waiting.pause() == 4, "it has shown that it is there"


def test_answer_ends_both() -> None:
    waiting = Waiting()
    for busy in (True, True, False, False):
        waiting.pause(busy=busy)
    waiting.controls.answered(1)
    assert not waiting.tick(LEADER)
    waiting.controls.add(b"get", None)
    assert not waiting.tick(LEADER)
    assert waiting.pause() == 4
    assert waiting.pause(busy=True) == 1
