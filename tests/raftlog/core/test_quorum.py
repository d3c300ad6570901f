"""Decisions of electorates, against a model that tries every majority. Section 4.3."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_raftlog.core.progress import Progress
from headrace_raftlog.core.quorum import VOTE_LOST, VOTE_PENDING, VOTE_WON, Electorate
from headrace_raftlog.model.membership import Membership

MEMBERS = range(1, 6)

voter_sets = st.frozensets(st.sampled_from(MEMBERS), min_size=1, max_size=5)
memberships: st.SearchStrategy[tuple[frozenset[int], frozenset[int]]] = st.one_of(
    st.tuples(voter_sets, st.just(frozenset())), st.tuples(voter_sets, voter_sets)
)


def electorate(halves):
    incoming, outgoing = halves
    return Electorate(Membership(tuple(incoming), (), tuple(outgoing)))


def quorums(halves):
    """Return every set of members that holds a majority of each half that there is."""
    return [
        set(some)
        for count in range(len(MEMBERS) + 1)
        for some in combinations(MEMBERS, count)
        if all(2 * len(half.intersection(some)) > len(half) for half in halves if half)
    ]


def progresses(own, **values):
    """Return the progress of all members but `own`, with an attribute set for each."""
    peers = {}
    for member in MEMBERS:
        if member != own:
            peers[member] = Progress(member, 1, 1, 1)
            for name, of in values.items():
                setattr(peers[member], name, of[member])
    return peers


numbers = st.fixed_dictionaries({member: st.integers(0, 6) for member in MEMBERS})
flags = st.fixed_dictionaries({member: st.booleans() for member in MEMBERS})


@given(memberships, numbers)
def test_committed_is_what_some_quorum_holds_entirely(halves, matches):
    """Sections 3.5 and 4.3: replicated on majorities of both configurations."""
    expected = max(min(matches[member] for member in quorum) for quorum in quorums(halves))
    peers = progresses(1, match=matches)
    assert electorate(halves).committed_index(peers, matches[1]) == expected


@given(memberships, numbers)
def test_confirmed_is_what_some_quorum_answered_entirely(halves, rounds):
    """Sections 6.4 and 4.3: acknowledged by majorities of both configurations."""
    expected = max(min(rounds[member] for member in quorum) for quorum in quorums(halves))
    peers = progresses(1, read_round=rounds)
    assert electorate(halves).confirmed_round(peers, rounds[1]) == expected


@given(memberships, st.dictionaries(st.sampled_from(MEMBERS), st.booleans()))
def test_election_is_won_by_a_quorum_and_lost_without_hope_of_one(halves, votes):
    """Sections 3.4 and 4.3: elected by majorities of both configurations."""
    granted = {member for member, answer in votes.items() if answer}
    refused = {member for member, answer in votes.items() if not answer}
    sets = quorums(halves)
    if any(quorum <= granted for quorum in sets):
        expected = VOTE_WON
    elif all(quorum & refused for quorum in sets):
        expected = VOTE_LOST
    else:
        expected = VOTE_PENDING
    assert electorate(halves).outcome(votes) == expected


@given(memberships, flags, st.sampled_from(MEMBERS))
def test_leader_is_active_with_a_quorum_that_was_heard(halves, heard, own):
    """Section 6.2 with 4.3; it hears itself, which helps only where it counts."""
    alive = {member for member in MEMBERS if heard[member]} | {own}
    expected = any(quorum <= alive for quorum in quorums(halves))
    assert electorate(halves).is_active(progresses(own, recent_active=heard)) is expected


@given(memberships, flags, st.sampled_from(MEMBERS))
def test_leader_is_in_touch_with_a_quorum_not_known_to_be_out_of_reach(halves, lost, own):
    """Silence needs a majority that could object."""
    near = {member for member in MEMBERS if not lost[member]} | {own}
    expected = any(quorum <= near for quorum in quorums(halves))
    assert electorate(halves).is_in_touch(progresses(own, probe_sent=lost)) is expected


@given(voter_sets, voter_sets)
def test_quorums_of_a_joint_membership_meet_those_before_and_after(old, new):
    """Section 4.3: no decision is made without each of the configurations it leads between."""
    for joint in quorums((new, old)):
        for plain in quorums((old, frozenset())) + quorums((new, frozenset())):
            assert joint & plain


@pytest.mark.parametrize(
    ("halves", "everyone"), [(((3, 1), ()), (1, 3)), (((3, 1), (2, 1)), (1, 2, 3))]
)
def test_electorate_names_everyone_who_counts_once(halves, everyone):
    counted = electorate((frozenset(halves[0]), frozenset(halves[1])))
    assert counted.voters == everyone
    assert [counted.contains(member) for member in (1, 2, 3, 4)] == [
        member in everyone for member in (1, 2, 3, 4)
    ]


def test_nobody_wins_nothing():
    """A member that waits to be admitted knows no voters and must not elect itself."""
    assert Electorate(Membership(())).outcome({1: True}) == VOTE_LOST
