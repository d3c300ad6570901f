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


def idle_leader(host, ticks):
    member = host(election_ticks=10, quiesce_ticks=20)
    member.elect()
    member.acknowledge(2, 1)
    member.acknowledge(3, 1)
    for _ in range(ticks):
        member.core.tick()
        member.drain()
        member.hear(2)
        member.hear(3)
    assert (member.core.role, member.core.quiesced) == (LEADER, False)
    return member


def lose(member, *peers):
    for peer in peers:
        member.core.report_unreachable(peer)
        member.core.wake()


@pytest.mark.parametrize("ticks", range(10, 20))
def test_leader_that_lost_its_majority_steps_down_instead_of_falling_silent(host, ticks):
    member = idle_leader(host, ticks)
    lose(member, 2, 3)
    for _ in range(20):
        member.core.tick()
        member.drain()
    assert member.core.role == FOLLOWER


def test_leader_falls_silent_without_a_minority(host):
    member = idle_leader(host, 19)
    lose(member, 3)
    member.core.tick()
    assert (member.core.role, member.core.quiesced) == (LEADER, True)


def test_member_that_is_heard_again_counts_for_silence(host):
    member = idle_leader(host, 19)
    lose(member, 2, 3)
    member.core.tick()
    assert not member.core.quiesced
    member.hear(2)
    member.core.tick()
    assert member.core.quiesced


def deliver(members, messages):
    """Let messages and what they cause arrive; return how many questions whether to vote."""
    asked = 0
    while messages:
        message = messages.pop(0)
        asked += message.kind == PRE_VOTE
        if message.target in members:
            members[message.target].core.step(message)
            messages += members[message.target].drain()
    return asked


def test_loss_of_a_node_that_led_a_thousand_groups_is_no_storm(host):
    """Hazard 38: each group asks about once, and they do not all ask at the same time."""
    asked_in = [0] * 10
    for group in range(1000):
        members = {
            number: host(member=number, seed=1000 * number + group, election_ticks=10)
            for number in (2, 3)
        }
        for member in members.values():
            member.step(HEARTBEAT, 1, 1, quiesce=True)
            member.core.lose_leader()
        for tick in range(10):
            for member in members.values():
                asked_in[tick] += deliver(members, member.tick())
        assert sorted(member.core.role for member in members.values()) == [FOLLOWER, LEADER]
    assert sum(asked_in) <= 2 * 1000, "both other members are asked, once"
    assert max(asked_in) <= 2 * 400
