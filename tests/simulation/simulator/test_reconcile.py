"""Steps of a simulated leader to the wanted members."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.membership import Membership, member_id, member_node
from headrace_simulation.simulator.catalog import GroupRecord
from headrace_simulation.simulator.coverage import Coverage
from headrace_simulation.simulator.invariants import Checker
from headrace_simulation.simulator.reconcile import next_step
from headrace_simulation.simulator.stability import Stability
from headrace_simulation.simulator.traffic import Traffic

NEW_3 = member_id(3, 99)


def record(desired, observers=(), founding=(1, 2, 3)):
    checker = Checker(
        7, Membership(founding), [], True, Coverage(), Stability(7, [], Coverage()), Traffic()
    )
    return GroupRecord(checker.memberships[0][1], desired, observers, checker)


@pytest.mark.parametrize(
    ("now", "joins", "desired", "observers", "expected"),
    [
        (Membership((1, 2, 3)), {}, (1, 2, 3), (), None),
        (Membership((1, 2, 3), (4,)), {}, (1, 2, 3), (4,), None),
        (Membership((1, 2)), {3: 3}, (1, 2, 3), (), Membership((1, 2), (3,))),
        (Membership((1, 2), (3,)), {3: 3}, (1, 2, 3), (), Membership((1, 2, 3))),
        (Membership((1, 2, 3)), {}, (1, 2), (), Membership((1, 2))),
        (Membership((1, 2, 3), (4,)), {}, (1, 2, 3), (), Membership((1, 2, 3))),
        (Membership((1, 2, 3)), {4: 4}, (1, 2, 3), (), None),
        # A member that lost its data comes back as another, which takes its place.
        (Membership((1, 2, 3)), {3: NEW_3}, (1, 2, 3), (), Membership((1, 2, 3), (NEW_3,))),
        (Membership((1, 2, 3), (NEW_3,)), {}, (1, 2, 3), (), Membership((1, 2, NEW_3))),
        (Membership((1, 2, 3, NEW_3)), {3: NEW_3}, (1, 2, 3), (), Membership((1, 2, NEW_3))),
        # It asks no more, or what the earlier one asked for comes late.
        (Membership((1, 2, 3, NEW_3)), {}, (1, 2, 3), (), Membership((1, 2, NEW_3))),
        (Membership((1, 2, NEW_3)), {3: 3}, (1, 2, 3), (), None),
        (Membership((1, 2, NEW_3), (3,)), {}, (1, 2, 3), (), Membership((1, 2, NEW_3))),
        # Never nobody.
        (Membership((1,)), {}, (2,), (), None),
    ],
)
def test_next_step(now, joins, desired, observers, expected):
    newest = {member_node(one): one for one in (1, 2, 3, 4, *now.everyone(), *joins.values())}
    if NEW_3 in now.everyone():
        newest[3] = NEW_3
    assert next_step(now, joins, newest, record(desired, observers)) == expected


def test_data_may_be_lost_only_where_every_electorate_keeps_a_majority():
    group = record((1, 2, 3))
    assert group.may_lose((1,))
    assert not group.may_lose((1, 2))
    group.lost[2] = True
    assert not group.may_lose((1,))
    assert group.may_lose((4,))
    group.lost.clear()
    group.checker.appended[5, 1] = Membership((1, 2), (), (1, 2, 3))
    assert not group.may_lose((1,))
    assert group.may_lose((3,))


def test_voters_that_could_never_decide_are_not_proposed():
    group = record((1, 2, 3))
    group.lost[3] = True
    assert group.may_have((1, 2, 3))
    assert not group.may_have((1, 3))
