"""The verdict on digests of one checkpoint."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.state_digest import StateDigest
from headrace_raftlog.node.divergence import Verdict, judge

VOTERS = (1, 2, 3)


def _digests(*states: str) -> list[StateDigest]:
    """Return digests of members 1, 2, ...: version and state, "" for a member without one."""
    given = enumerate(states, 1)
    return [StateDigest(m, 7, s[:1], s[1:].encode()) for m, s in given if s]


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        (("va", "va", "va"), Verdict()),
        (("va", "vb", "va"), Verdict(wrong=(2,))),
        (("vb", "va", "va"), Verdict(wrong=(1,))),  # member 1 may well be the leader
        (("va", "vb", ""), Verdict(undecided=(1, 2))),  # two of three differ: either may be right
        (("va", "vb", "vc"), Verdict(undecided=(1, 2, 3))),
        (("va", "va", ""), Verdict()),
        (("va", "", ""), Verdict()),
        ((), Verdict()),
        (("va", "va", "wb"), Verdict()),  # another version says nothing of it
        (("va", "vb", "wa"), Verdict(undecided=(1, 2))),
        (("va", "wb", "xc"), Verdict()),
        (("va", "va", "va", "vb"), Verdict(wrong=(4,))),  # member 4 is a learner
        (("va", "", "", "vb"), Verdict(undecided=(1, 4))),
        (("vb", "vc", "va", "va"), Verdict(undecided=(1, 2, 3, 4))),  # a learner has no vote
    ],
)
def test_who_differs_from_a_majority_of_the_voters_is_wrong(
    states: tuple[str, ...], verdict: Verdict
) -> None:
    assert judge(VOTERS, _digests(*states)) == verdict


def test_of_two_voters_that_differ_none_is_wrong() -> None:
    assert judge((1, 2), _digests("va", "vb")) == Verdict(undecided=(1, 2))


def test_of_five_voters_two_that_differ_are_wrong() -> None:
    five = _digests("va", "vb", "va", "vc", "va")
    assert judge((1, 2, 3, 4, 5), five) == Verdict(wrong=(2, 4))
    assert judge((1, 2, 3, 4, 5), five[:4]) == Verdict(undecided=(1, 2, 3, 4))


def test_member_without_a_state_to_compare_says_nothing() -> None:
    nothing = [StateDigest(3, 7, "", b"")]
    assert judge(VOTERS, _digests("va", "va") + nothing) == Verdict()
    assert judge(VOTERS, _digests("va", "vb") + nothing) == Verdict(undecided=(1, 2))
