from __future__ import annotations

import random

import pytest

from headrace_broker.runtime.contract.recently_applied import RecentlyApplied


@pytest.mark.parametrize("seed", range(20))
def test_each_reader_gets_what_changed_since_its_own_last_look(seed: int) -> None:
    """However often the others look."""
    chance = random.Random(seed)
    replicas = set(range(20))
    recent = RecentlyApplied(replicas)
    changes = {group: recent.of(group) for group in replicas}
    readers = [recent.reader() for _ in range(3)]
    changed: list[set[int]] = [set() for _ in readers]
    for _ in range(1000):
        group = chance.randrange(20)
        if chance.random() < 0.6:
            changes[group].note()
            for each in changed:
                each.add(group)
        elif chance.random() < 0.1:  # it is removed, and may come back at once
            changes[group].note()
            for each in changed:
                each.add(group)
            changes[group] = recent.of(group)
        elif chance.random() < 0.2:
            replicas ^= {group}
            changes[group].note()
            for each in changed:
                each.add(group)
        else:
            number = chance.randrange(3)
            found = readers[number]()
            assert len(found) == len(set(found))
            assert set(found) == changed[number] & replicas
            changed[number].clear()
    replicas.clear()
    for change in changes.values():
        change.note()
    assert readers[0]() == []
    assert not recent._looks


def test_groups_that_change_on_and_on_take_no_more_room() -> None:
    recent = RecentlyApplied({7})
    changes, reader = recent.of(7), recent.reader()
    for _ in range(100):
        changes.note()
        assert reader() == [7]
    assert len(recent._looks) == 1
    assert reader() == []
