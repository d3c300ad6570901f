"""Each rule of the checker is broken once by hand, and by nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.chaos.checker import EXAMPLES_MAX, check, main, summary
from e2e.chaos.history import (
    Delivery,
    History,
    Operation,
    Outcome,
    Publish,
    message_body,
    message_id,
)
from e2e.chaos.linearizability import Reads


def published(number: int, outcome: Outcome = Outcome.CONFIRMED, channel: int = 1) -> Publish:
    return Publish(f"m{channel}-{number}", "work", "p", channel, number, outcome)


def delivered(
    message: str, *, flagged: bool = False, queue: str = "work", consumer: str = "c"
) -> Delivery:
    return Delivery(message, queue, consumer, flagged)


def rules(history: History) -> list[str]:
    return [each.rule for each in check(history)]


def test_a_good_history_passes() -> None:
    history = History(
        [published(1), published(2), published(3, Outcome.UNKNOWN), published(4, Outcome.REJECTED)],
        [delivered("m1-1"), delivered("m1-2"), delivered("m1-1", flagged=True)],
        [Operation("q", "n1", True, True, 0.0, 1.0), Operation("q", "n2", False, True, 2.0, 3.0)],
    )
    assert check(history) == []


def test_confirmed_and_never_delivered_is_lost() -> None:
    history = History([published(1), published(2)], [delivered("m1-1")])
    (violation,) = check(history)
    assert violation.rule == "lost"
    assert "m1-2" in violation.text


def test_confirmed_messages_may_be_delayed_or_come_as_dead_letters() -> None:
    late = [published(3, Outcome.UNKNOWN), published(4, Outcome.REJECTED)]
    history = History([published(1), published(2), *late], [])
    for count, found in ((1, ["lost"]), (2, []), (3, []), (4, []), (5, ["phantom"])):
        history.delayed["work"] = count
        assert rules(history) == found
    letters = [delivered("m1-2", queue="dead"), delivered("m1-1", queue="dead")]
    history = History([published(1), published(2)], letters, dead_letters={"work": "dead"})
    assert rules(history) == []
    del history.deliveries[0]
    assert rules(history) == ["lost"]
    history.deliveries.append(delivered("m1-2", queue="other"))
    assert rules(history) == ["phantom"]


def test_unconfirmed_messages_may_be_lost_or_come() -> None:
    history = History([published(1, Outcome.UNKNOWN), published(2, Outcome.UNKNOWN)], [])
    assert rules(history) == []
    history.deliveries.append(delivered("m1-2"))
    assert rules(history) == []


@pytest.mark.parametrize(
    "phantom", [delivered("never"), delivered("m1-1", queue="other")], ids=["unknown", "elsewhere"]
)
def test_what_was_not_published_there_is_a_phantom(phantom: Delivery) -> None:
    flagged = Delivery(phantom.id, phantom.queue, phantom.consumer, True)
    assert rules(History([published(1)], [delivered("m1-1"), flagged])) == ["phantom"]


def test_a_damaged_body_is_a_phantom() -> None:
    body = message_body("m1-1", 100)
    assert message_id(body) == "m1-1"
    for damaged in (body[:-1], body + b".", body[:50] + b"!" + body[51:], b"", b"x/y/z"):
        assert rules(History([], [delivered(message_id(damaged))])) == ["phantom"]


def test_second_delivery_without_flag_is_an_unflagged_duplicate() -> None:
    twice = [delivered("m1-1", consumer="a"), delivered("m1-1", consumer="b")]
    assert rules(History([published(1)], twice)) == ["unflagged-duplicate"]


def test_flagged_deliveries_may_repeat_and_come_first() -> None:
    often = [delivered("m1-1", flagged=True), delivered("m1-1"), delivered("m1-1", flagged=True)]
    assert rules(History([published(1)], often)) == []


def test_first_deliveries_of_a_channel_must_not_overtake() -> None:
    swapped = [delivered("m1-2"), delivered("m1-1")]
    assert rules(History([published(1), published(2)], swapped)) == ["order"]


def test_order_holds_within_channel_and_consumer_only() -> None:
    publishes = [published(1), published(2), published(1, channel=2)]
    two_channels = [delivered("m1-2", consumer="c"), delivered("m2-1", consumer="c")]
    other_consumer = [delivered("m1-1", consumer="d")]
    assert rules(History(publishes, two_channels + other_consumer)) == []
    flagged = [*two_channels, delivered("m1-1", flagged=True)]
    assert rules(History(publishes, flagged)) == []


def test_stale_look_at_the_catalog_breaks_the_register_and_is_told() -> None:
    history = History(
        operations=[
            Operation("q", "n1", True, True, 0.0, 1.0),
            Operation("other", "n1", True, False, 0.0, 1.0),
            Operation("q", "n2", False, False, 1.5, 2.0),
        ]
    )
    (violation,) = check(history)
    assert violation.rule == "register"
    first, second, third = violation.text.splitlines()
    assert first.startswith("q:")
    assert second.split() == ["n1", "-1500.0", "..", "-500.0", "create"]
    assert third.split() == ["n2", "0.0", "..", "500.0", "look:", "absent"]


def test_late_routing_is_excused_on_request_only() -> None:
    history = History(
        operations=[
            Operation("b", "n1", True, True, 0.0, 1.0, routing=True),
            Operation("b", "n2", False, False, 1.5, 2.0, routing=True),
        ]
    )
    assert rules(history) == ["register"]
    assert check(history, Reads.OWN_ROUTING) == []


def test_many_violations_of_a_rule_are_counted_and_some_shown() -> None:
    history = History([published(number) for number in range(100)], [])
    violations = check(history)
    assert len(violations) == EXAMPLES_MAX + 1
    assert "100" in violations[-1].text


def test_a_saved_history_is_judged_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = History(
        [published(1), published(2, Outcome.UNKNOWN)],
        [],
        [
            Operation("q", "n1", True, True, 0.0, 1.0),
            Operation("q", "n2", False, False, 1.5, 2.0),
            Operation("q", "n2", True, False, 3.0, None),
        ],
    )
    file = tmp_path / "history.json"
    history.save(file)
    assert check(History.load(file)) == check(history)
    assert main([str(file)]) == 1
    strict = capsys.readouterr().out
    assert summary(history) in strict
    assert "lost: m1-1" in strict
    assert "register: q" in strict
    assert main([str(file), "own-node"]) == 1
    assert "register" not in capsys.readouterr().out
