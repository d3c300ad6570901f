"""Facts that a data directory must keep about its node."""

from __future__ import annotations

import pytest

from headrace_raftlog.crash_explorer.starts import Starts
from headrace_raftlog.storage.writing.identity import Identity


def identity(boot: int, formed: bool = False) -> Identity:
    return Identity("name", 1, boot, 77, {1: 77} if formed else {})


@pytest.mark.parametrize(("boot", "right"), [(2, False), (3, True), (4, True), (5, False)])
def test_start_counts_what_was_counted_or_begun(boot: int, right: bool) -> None:
    starts = Starts(boots=2, boots_begun=3).begin_start()
    assert (starts.judge(identity(boot)) == "") == right


@pytest.mark.parametrize(
    ("promised", "begun", "found", "right"),
    [
        (False, False, False, True),
        (False, False, True, False),
        (False, True, False, True),
        (False, True, True, True),
        (True, True, False, False),
        (True, True, True, True),
    ],
)
def test_formation_is_kept_once_promised(
    promised: bool, begun: bool, found: bool, right: bool
) -> None:
    starts = Starts(0, 1, formed=promised, forming=begun)
    assert (starts.judge(identity(1, found)) == "") == right


def test_what_a_start_found_is_promised_from_then_on() -> None:
    assert Starts(1, 3, forming=True).end_start(identity(2, formed=True)) == Starts(
        2, 2, formed=True, forming=True
    )


def test_stricter_promises_imply_looser_ones() -> None:
    assert Starts(1, 3).implied_by(Starts(2, 2))
    assert not Starts(2, 2).implied_by(Starts(1, 2))
    assert not Starts(1, 2).implied_by(Starts(1, 3))
    assert not Starts(formed=True).implied_by(Starts())
    assert not Starts().implied_by(Starts(forming=True))
