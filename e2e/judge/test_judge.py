"""TLC accepts what is possible, rejects what is not, and reads the exported form."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from e2e.chaos.history import Delivery, History, Operation, Outcome, Publish
from e2e.judge.doctor import MESSAGE_DOCTORS, misread
from e2e.judge.judge import judge_messages, judge_names
from e2e.judge.operations import export, load, save
from msgspec.structs import replace

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="TLC needs Java")
OUTCOMES = (Outcome.CONFIRMED, Outcome.CONFIRMED, Outcome.UNKNOWN, Outcome.REJECTED)


def history() -> History:
    """Two publishers that number their channels alike, dead letters, and delayed messages."""
    made = History()
    for publisher in ("a", "b"):
        for number in range(8):
            name = f"{publisher}{number}"
            publish = Publish(name, "work", publisher, 1, number, OUTCOMES[number % 4])
            made.publishes.append(publish)
            if number % 4 != 3:
                made.deliveries.append(Delivery(name, "work", "reader", False))
    made.deliveries.append(Delivery("a0", "work", "other", True))
    for number in range(3):
        made.publishes.append(Publish(f"l{number}", "short", "c", 1, number, Outcome.CONFIRMED))
        made.deliveries.append(Delivery(f"l{number}", "dead", "drain", False))
        made.publishes.append(Publish(f"d{number}", "later", "d", 1, number, Outcome.CONFIRMED))
    made.deliveries.append(Delivery("l0", "dead", "drain", False))  # a dead letter may come twice
    made.publishes.append(Publish("d3", "later", "d", 1, 3, Outcome.UNKNOWN))  # it is there too
    made.dead_letters["short"] = "dead"
    made.delayed["later"] = 4
    return made


def test_exported_form_is_read_as_it_was_written(tmp_path: Path) -> None:
    events = export(history())
    save(events, tmp_path / "history.jsonl")
    assert load(tmp_path / "history.jsonl") == events
    assert {each.type for each in events} == {"invoke", "ok", "fail", "info"}


def test_messages_are_accepted_and_each_doctored_history_is_rejected(tmp_path: Path) -> None:
    events = export(history())
    assert judge_messages(events, tmp_path / "right").accepted
    for name, doctor in MESSAGE_DOCTORS.items():
        assert not judge_messages(doctor(events), tmp_path / name).accepted, name


def test_miscounted_history_is_wrong_in_the_count_alone(tmp_path: Path) -> None:
    events = export(history())
    doctored = MESSAGE_DOCTORS["miscounted"](events)
    pairs = zip(events, doctored, strict=True)
    [(right, wrong)] = [(before, after) for before, after in pairs if before != after]
    assert (right.queue, right.value) == (wrong.queue, wrong.value + 2) == ("later", 4)
    one_less = [replace(each, value=3) if each == right else each for each in events]
    assert judge_messages(one_less, tmp_path / "one-less").accepted


def operation(begin: int, end: int | None, value: bool, *, write: bool) -> Operation:
    return Operation("q", "n1", write, value, begin, end)


WRITE_UNKNOWN = operation(10, None, True, write=True)
SEES = operation(30, 31, True, write=False)
SEES_NOT = operation(40, 41, False, write=False)
ACCEPTED = {
    "late": [WRITE_UNKNOWN, operation(20, 21, False, write=False), SEES],
    "never": [WRITE_UNKNOWN, SEES_NOT],
    "overlap": [operation(10, 50, True, write=True), SEES, operation(60, 61, True, write=False)],
    "overlap-unseen": [operation(10, 50, True, write=True), SEES_NOT],
}
REJECTED = {
    "taken-back": [WRITE_UNKNOWN, SEES, SEES_NOT],
    "stale": [operation(10, 20, True, write=True), SEES_NOT],
    "from-nowhere": [SEES],
    "seen-early": [SEES, operation(35, 36, True, write=True)],
}


EITHER_ORDER = [
    operation(10, 40, True, write=True),
    operation(20, 50, False, write=True),
    operation(60, 61, False, write=False),
]


def test_a_read_after_writes_that_overlap_is_left_as_it_is(tmp_path: Path) -> None:
    inverted = [*EITHER_ORDER[:2], operation(60, 61, True, write=False)]
    assert judge_names(export(History(operations=inverted)), tmp_path / "inverted").accepted
    with pytest.raises(AssertionError, match="no read"):
        misread(export(History(operations=EITHER_ORDER)))
    more = [operation(70, 80, True, write=True), operation(75, 90, True, write=False)]
    settled = [*more, operation(85, 86, True, write=False)]
    right = export(History(operations=[*EITHER_ORDER, *settled]))
    assert judge_names(right, tmp_path / "right").accepted
    assert not judge_names(misread(right), tmp_path / "misread").accepted


@pytest.mark.parametrize("name", [*ACCEPTED, *REJECTED])
def test_names_are_judged_by_what_can_have_taken_effect_when(name: str, tmp_path: Path) -> None:
    operations = {**ACCEPTED, **REJECTED}[name]
    found = judge_names(export(History(operations=operations)), tmp_path)
    assert found.accepted is (name in ACCEPTED)
