"""Changes of a view since the last query."""

from __future__ import annotations

import msgspec

from headrace_broker.management.page.view_state import GONE_MAX, Change, ViewState


def told(change: Change) -> dict[str, int]:
    return {key: msgspec.json.decode(value) for key, value in change.put.items()}


def test_who_knows_nothing_gets_all():
    board = ViewState()
    board.update({"a": 1, "b": 2})
    change = board.since(0)
    assert (change.version, change.whole, told(change), change.gone) == (
        1,
        True,
        {"a": 1, "b": 2},
        [],
    )


def test_who_knows_a_version_gets_what_changed_since():
    board = ViewState()
    board.update({"a": 1, "b": 2, "c": 3})
    board.update({"a": 1, "b": 5})
    board.update({"a": 1, "b": 5, "d": 4})
    change = board.since(1)
    assert (change.whole, told(change), change.gone) == (False, {"b": 5, "d": 4}, ["c"])
    assert told(board.since(2)) == {"d": 4}
    assert board.since(3).is_empty()


def test_what_comes_back_is_not_gone():
    board = ViewState()
    board.update({"a": 1})
    board.update({})
    board.update({"a": 1})
    assert (told(board.since(1)), board.since(1).gone) == ({"a": 1}, [])


def test_an_empty_board_is_told_once_to_who_knows_nothing():
    board = ViewState()
    board.update({})
    assert not board.since(0).is_empty()
    assert board.since(1).is_empty()


def test_who_has_missed_too_much_gets_all_again():
    board = ViewState()
    board.update(dict.fromkeys(map(str, range(GONE_MAX + 1)), 0))
    known = board.version
    board.update({"new": 1})
    change = board.since(known)
    assert (change.whole, told(change)) == (True, {"new": 1})
    assert board.since(board.version).is_empty()
