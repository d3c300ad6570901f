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
    looks = dict.fromkeys(replicas, 0)  # at the last change of each
    readers = [recent.reader() for _ in range(3)]
    changed: list[set[int]] = [set() for _ in readers]
    for _ in range(1000):
        group = chance.randrange(20)
        if chance.random() < 0.6:
            looks[group] = recent.note(group, looks[group])
            for each in changed:
                each.add(group)
        elif chance.random() < 0.1:  # it is removed, and may come back at once
            looks[group] = recent.note(group, looks[group])
            for each in changed:
                each.add(group)
            looks[group] = 0
        elif chance.random() < 0.2:
            replicas ^= {group}
            looks[group] = recent.note(group, looks[group])
            for each in changed:
                each.add(group)
        else:
            number = chance.randrange(3)
            found = readers[number]()
            assert len(found) == len(set(found))
            assert set(found) == changed[number] & replicas
            changed[number].clear()
    replicas.clear()
    for group, look in looks.items():
        recent.note(group, look)
    assert readers[0]() == []
    assert not recent._looks


def test_groups_that_change_on_and_on_take_no_more_room() -> None:
    recent = RecentlyApplied({7})
    look, reader = 0, recent.reader()
    for _ in range(100):
        look = recent.note(7, look)
        assert recent.note(7, look) == look
        assert reader() == [7]
    assert len(recent._looks) == 1
    assert reader() == []
