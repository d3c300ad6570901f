"""A host that knows the leader's node to be down need not wait for the election timeout."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.group import FOLLOWER, LEADER, PRE_CANDIDATE
from headrace_raftlog.model.message import HEARTBEAT, PRE_VOTE, PRE_VOTE_REPLY, VOTE


def following(host, seed=1):
    member = host(election_ticks=10, seed=seed)
    member.step(HEARTBEAT, 2, 1)
    assert (member.core.role, member.core.leader) == (FOLLOWER, 2)
    return member


@pytest.mark.parametrize("seed", range(20))
def test_follower_asks_for_votes_within_half_the_shortest_timeout(host, seed):
    member = following(host, seed)
    member.core.lose_leader()
    assert member.core.leader == 0
    ticks = 0
    while member.core.role == FOLLOWER:
        member.core.tick()
        ticks += 1
        assert ticks <= 5
    assert {message.kind for message in member.drain()} == {PRE_VOTE}
    assert member.core.role == PRE_CANDIDATE


def test_followers_of_one_leader_do_not_all_ask_in_the_same_tick(host):
    timeouts = set()
    for seed in range(20):
        member = following(host, seed)
        member.core.lose_leader()
        timeouts.add(member.core.election_timeout)
    assert len(timeouts) > 2


def test_silent_follower_wakes(host):
    member = host(election_ticks=10)
    member.step(HEARTBEAT, 2, 1, quiesce=True)
    assert member.core.quiesced
    member.core.lose_leader()
    assert not member.core.quiesced


def test_another_member_that_lost_the_leader_too_gets_its_pre_vote(host):
    member = following(host)
    assert member.step(PRE_VOTE, 3, 2) == []
    member.core.lose_leader()
    (reply,) = member.step(PRE_VOTE, 3, 2)
    assert (reply.kind, reply.reject) == (PRE_VOTE_REPLY, False)


def test_vote_of_the_same_term_is_not_given_twice(host):
    member = host(election_ticks=10)
    member.step(VOTE, 2, 1)
    member.step(HEARTBEAT, 2, 1)
    member.core.lose_leader()
    (reply,) = member.step(VOTE, 3, 1)
    assert reply.reject


def test_leader_that_is_heard_after_all_is_followed_again(host):
    member = following(host)
    member.core.lose_leader()
    member.step(HEARTBEAT, 2, 1)
    assert (member.core.role, member.core.leader) == (FOLLOWER, 2)


def test_leader_itself_is_not_concerned(leader):
    leader.core.lose_leader()
    assert leader.core.role == LEADER
