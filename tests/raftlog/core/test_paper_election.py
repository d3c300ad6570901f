"""Requirements of the thesis on terms and elections: one test per sentence."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.entry import HardState
from headrace_raftlog.model.group import BUSY, CANDIDATE, FOLLOWER, LEADER, PRE_CANDIDATE
from headrace_raftlog.model.message import (
    APPEND,
    APPEND_REPLY,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    TIMEOUT_NOW,
    VOTE,
    VOTE_REPLY,
    Message,
)

GROUP = 7


def kinds(messages):
    return [(message.kind, message.target) for message in messages]


def test_member_starts_as_follower(host):
    """Section 3.4: when servers start up, they begin as followers."""
    assert host().core.role == FOLLOWER


@pytest.mark.parametrize("kind", [APPEND, HEARTBEAT, APPEND_REPLY, HEARTBEAT_REPLY, VOTE_REPLY])
def test_newer_term_in_any_message_makes_a_leader_follow(leader, kind):
    """Section 3.3: a server that finds its term out of date updates it and becomes a follower."""
    leader.step(kind, 2, 5)
    assert (leader.core.term, leader.core.role) == (5, FOLLOWER)


def test_newer_term_makes_a_candidate_follow(host):
    """Section 3.3: the same for a candidate."""
    member = host()
    member.core.campaign()
    member.drain()
    member.step(PRE_VOTE_REPLY, 2, 1)
    assert member.core.role == CANDIDATE
    member.step(VOTE_REPLY, 2, 3, reject=True)
    assert (member.core.term, member.core.role, member.core.vote) == (3, FOLLOWER, 0)


@pytest.mark.parametrize("kind", [VOTE, PRE_VOTE])
def test_request_of_stale_term_is_rejected_with_the_current_term(host, kind):
    """Section 3.3: a server that gets a request with a stale term rejects it."""
    member = host(hard_state=HardState(4, 0, 0))
    (reply,) = member.step(kind, 2, 3)
    assert (reply.reject, reply.term) == (True, 4)
    assert member.core.vote == 0


@pytest.mark.parametrize("kind", [APPEND, HEARTBEAT])
def test_leader_of_stale_term_learns_the_current_one_and_is_not_followed(host, kind):
    """Section 3.3: a stale leader's request changes nothing and gets the current term back."""
    member = host(terms=(1,), hard_state=HardState(4, 0, 0))
    (reply,) = member.step(kind, 2, 3)
    assert (reply.kind, reply.term, member.core.leader) == (HEARTBEAT_REPLY, 4, 0)
    assert member.terms() == [1]


def test_leader_sends_heartbeats_at_its_interval(host):
    """Section 3.4: leaders send periodic heartbeats to all followers."""
    member = host(heartbeat_ticks=2, quiesce_ticks=0)
    member.elect()
    member.acknowledge(2, 1)
    member.acknowledge(3, 1)
    member.core.tick()
    assert member.drain() == []
    member.core.tick()
    assert kinds(member.drain()) == [(HEARTBEAT, 2), (HEARTBEAT, 3)]


def test_follower_starts_election_only_after_a_timeout_without_leader(host):
    """Section 3.4: a follower that hears nothing over an election timeout begins an election."""
    member = host(election_ticks=10)
    for _ in range(9):
        member.core.tick()
    assert member.core.role == FOLLOWER
    member.step(HEARTBEAT, 2, 1)
    for _ in range(9):
        member.core.tick()
    assert member.core.role == FOLLOWER
    for _ in range(11):
        member.core.tick()
    assert member.core.role == PRE_CANDIDATE


def test_election_timeouts_are_spread_over_the_interval(host):
    """Section 3.4: timeouts are chosen randomly from a fixed interval, here [n, 2n)."""
    seen = []
    for seed in range(200):
        member = host(seed=seed, election_ticks=10)
        ticks = 0
        while member.core.role == FOLLOWER:
            member.core.tick()
            ticks += 1
        seen.append(ticks)
    assert sorted(set(seen)) == list(range(10, 20))
    assert max(seen.count(ticks) for ticks in range(10, 20)) < 40


def test_candidate_begins_a_new_term_and_votes_for_itself(host):
    """Section 3.4: to begin an election a follower increments its term and votes for itself."""
    member = host()
    member.core.campaign()
    member.drain()
    messages = member.step(PRE_VOTE_REPLY, 3, 1)
    assert (member.core.role, member.core.term, member.core.vote) == (CANDIDATE, 1, 1)
    assert kinds(messages) == [(VOTE, 2), (VOTE, 3)]
    assert [message.term for message in messages] == [1, 1]


@pytest.mark.parametrize(
    ("voters", "granted", "refused", "role"),
    [
        ((1,), (), (), LEADER),
        ((1, 2), (), (), CANDIDATE),
        ((1, 2), (2,), (), LEADER),
        ((1, 2), (), (2,), FOLLOWER),
        ((1, 2, 3), (2,), (), LEADER),
        ((1, 2, 3), (2,), (3,), LEADER),
        ((1, 2, 3), (), (2,), CANDIDATE),
        ((1, 2, 3), (), (2, 3), FOLLOWER),
        ((1, 2, 3, 4), (2,), (), CANDIDATE),
        ((1, 2, 3, 4), (2,), (3,), CANDIDATE),
        ((1, 2, 3, 4), (2,), (3, 4), FOLLOWER),
        ((1, 2, 3, 4), (2, 4), (), LEADER),
        ((1, 2, 3, 4, 5), (2,), (3, 4), CANDIDATE),
        ((1, 2, 3, 4, 5), (2, 5), (3, 4), LEADER),
        ((1, 2, 3, 4, 5, 6, 7), (2, 3), (), CANDIDATE),
        ((1, 2, 3, 4, 5, 6, 7), (2, 3, 7), (), LEADER),
    ],
)
def test_candidate_needs_a_majority_of_the_whole_group(host, voters, granted, refused, role):
    """Section 3.4: a candidate wins with votes from a majority of the full cluster."""
    member = host(voters=voters)
    member.core.campaign()
    member.drain()
    for voter in voters[1:]:
        member.step(PRE_VOTE_REPLY, voter, 1)
    for voter in granted:
        member.step(VOTE_REPLY, voter, 1)
    for voter in refused:
        member.step(VOTE_REPLY, voter, 1, reject=True)
    assert member.core.role == role


def test_votes_of_members_that_do_not_count_are_ignored(host):
    """Section 4.2.1: learners and strangers do not count toward a majority."""
    member = host(voters=(1, 2, 3), learners=(4,))
    member.core.campaign()
    member.drain()
    member.step(PRE_VOTE_REPLY, 4, 1)
    member.step(PRE_VOTE_REPLY, 9, 1)
    assert member.core.role == PRE_CANDIDATE
    member.step(PRE_VOTE_REPLY, 2, 1)
    member.step(VOTE_REPLY, 4, 1)
    member.step(VOTE_REPLY, 9, 1)
    assert member.core.role == CANDIDATE


def test_member_votes_once_per_term_first_come_first_served(host):
    """Section 3.4: each server votes for at most one candidate in a term."""
    member = host()
    (first,) = member.step(VOTE, 2, 1)
    (second,) = member.step(VOTE, 3, 1)
    (again,) = member.step(VOTE, 2, 1)
    assert (first.reject, second.reject, again.reject) == (False, True, False)


def test_vote_is_remembered_across_a_restart(host):
    """Section 3.8: the term and the vote are persistent."""
    member = host(hard_state=HardState(3, 2, 0))
    (reply,) = member.step(VOTE, 3, 3)
    assert reply.reject
    (reply,) = member.step(VOTE, 2, 3)
    assert not reply.reject


def test_vote_leaves_only_after_it_is_durable(host):
    """Section 3.8: persistent state is updated on stable storage before responding."""
    member = host()
    member.core.step(Message(VOTE, GROUP, 2, 1, 1))
    ready = member.ready()
    assert ready.hard_state == HardState(1, 2, 0)
    assert ready.must_sync
    assert ready.messages == []
    assert kinds(ready.messages_after_persist) == [(VOTE_REPLY, 2)]


def test_nothing_that_names_a_new_term_leaves_before_the_term_is_durable(host):
    """Section 3.8: the same for every other message of the term."""
    member = host()
    member.core.step(Message(HEARTBEAT, GROUP, 2, 1, 1))
    first = member.ready()
    assert first.messages == []
    member.core.step(Message(HEARTBEAT, GROUP, 2, 1, 1))
    second = member.ready()
    assert second.messages == []
    assert kinds(second.messages_after_persist) == [(HEARTBEAT_REPLY, 2)]
    member.core.persisted(second.number)
    member.core.step(Message(HEARTBEAT, GROUP, 2, 1, 1))
    assert kinds(member.ready().messages) == [(HEARTBEAT_REPLY, 2)]


def test_candidate_counts_its_own_vote_once_it_is_durable(host):
    """Section 3.8: a vote that is not durable is none, one's own included."""
    member = host(voters=(1,))
    member.core.campaign()
    ready = member.ready()
    assert member.core.role == CANDIDATE
    member.core.persisted(ready.number)
    assert member.core.role == LEADER


@pytest.mark.parametrize("kind", [APPEND, HEARTBEAT])
def test_candidate_follows_a_leader_of_its_own_term(host, kind):
    """Section 3.4: a candidate that hears a leader of at least its term returns to follower."""
    member = host()
    member.core.campaign()
    member.drain()
    member.step(PRE_VOTE_REPLY, 2, 1)
    member.step(kind, 3, 1)
    assert (member.core.role, member.core.leader, member.core.vote) == (FOLLOWER, 3, 1)


def test_pre_candidate_follows_the_leader_of_its_term(leader, host):
    """Section 9.6: the same for one that only asks."""
    member = host(hard_state=HardState(1, 2, 0))
    member.core.campaign()
    member.drain()
    member.step(HEARTBEAT, 2, 1)
    assert (member.core.role, member.core.leader, member.core.term) == (FOLLOWER, 2, 1)


def test_split_vote_ends_in_a_new_election_with_a_higher_term(host):
    """Section 3.4: a candidate that times out starts a new election."""
    member = host(voters=(1, 2, 3, 4, 5), election_ticks=5)
    member.core.campaign()
    member.drain()
    for voter in (2, 3):
        member.step(PRE_VOTE_REPLY, voter, 1)
    assert (member.core.role, member.core.term) == (CANDIDATE, 1)
    for _ in range(10):
        member.core.tick()
    assert member.core.role == PRE_CANDIDATE
    for voter in (2, 3):
        member.step(PRE_VOTE_REPLY, voter, 2)
    assert (member.core.role, member.core.term) == (CANDIDATE, 2)


def test_answers_of_another_election_do_not_count(host):
    """Section 3.3: replies of another term are disregarded."""
    member = host(hard_state=HardState(4, 0, 0))
    member.core.campaign()
    member.drain()
    member.step(PRE_VOTE_REPLY, 2, 4)
    member.step(PRE_VOTE_REPLY, 2, 7)
    assert (member.core.role, member.core.term) == (PRE_CANDIDATE, 4)
    member.step(PRE_VOTE_REPLY, 3, 5)
    member.step(VOTE_REPLY, 2, 4)
    assert member.core.role == CANDIDATE


@pytest.mark.parametrize("kind", [VOTE, PRE_VOTE])
@pytest.mark.parametrize(
    ("terms", "last_term", "last_index", "granted"),
    [
        ((1,), 1, 1, True),
        ((1,), 1, 2, True),
        ((1, 1), 1, 1, False),
        ((1, 1), 2, 1, True),
        ((1, 2), 1, 5, False),
        ((1, 2), 2, 2, True),
        ((), 0, 0, True),
        ((1,), 0, 0, False),
    ],
)
def test_voter_denies_a_candidate_with_an_older_log(
    host, kind, terms, last_term, last_index, granted
):
    """Section 3.6.1: the later last term wins, with equal terms the longer log."""
    member = host(terms=terms)
    (reply,) = member.step(kind, 2, 9, index=last_index, log_term=last_term)
    assert reply.reject is not granted


def test_pre_vote_changes_neither_term_nor_vote_nor_timer(host):
    """Section 9.6: asking must not have side effects on those who are asked."""
    asked = host(seed=5, election_ticks=5)
    alone = host(seed=5, election_ticks=5)
    timeouts = []
    for member in (asked, alone):
        ticks = 0
        while member.core.role == FOLLOWER:
            if member is asked:
                (reply,) = member.step(PRE_VOTE, 2, 1)
                assert (reply.term, reply.reject) == (1, False)
                assert (member.core.term, member.core.vote) == (0, 0)
            member.core.tick()
            ticks += 1
        timeouts.append(ticks)
    assert timeouts[0] == timeouts[1]


def test_asking_does_not_raise_the_own_term(host):
    """Section 9.6: a candidate increments its term only if it could win."""
    member = host(hard_state=HardState(3, 0, 0), election_ticks=3)
    for _ in range(50):
        member.core.tick()
    member.drain()
    assert (member.core.role, member.core.term) == (PRE_CANDIDATE, 3)


@pytest.mark.parametrize("kind", [VOTE, PRE_VOTE])
def test_member_that_hears_its_leader_takes_no_part_in_an_election(host, kind):
    """Section 4.2.3: requests within the minimum timeout of hearing a leader are disregarded."""
    member = host(election_ticks=5)
    member.step(HEARTBEAT, 2, 1)
    for _ in range(4):
        member.core.tick()
    assert member.step(kind, 3, 2) == []
    assert (member.core.term, member.core.leader) == (1, 2)
    member.core.tick()
    *told, reply = member.step(kind, 3, 2)
    assert not reply.reject
    # Who led learns that it does no longer: it may be silent.
    former = [(message.kind, message.target, message.term) for message in told]
    assert former == ([(HEARTBEAT_REPLY, 2, 2)] if kind == VOTE else [])


@pytest.mark.parametrize("kind", [VOTE, PRE_VOTE])
def test_leader_takes_no_part_in_an_election(leader, kind):
    """Section 4.2.3: nor does the leader itself."""
    assert leader.step(kind, 3, 2, index=9, log_term=1) == []
    assert (leader.core.role, leader.core.term) == (LEADER, 1)


def test_election_that_the_leader_asked_for_is_not_disregarded(leader, host):
    """Sections 3.10 and 4.2.3: a transfer's request carries a flag that overrides stickiness."""
    assert leader.core.transfer(2)
    (message,) = leader.drain()
    assert kinds([message]) == [(TIMEOUT_NOW, 2)]
    target = host(member=2, terms=(1,))
    target.step(HEARTBEAT, 1, 1)
    votes = target.step(TIMEOUT_NOW, 1, 1)
    assert [(vote.kind, vote.term) for vote in votes] == [(VOTE, 2), (VOTE, 2)]
    (reply,) = leader.step(VOTE, 2, 2, index=1, log_term=1, context=votes[0].context)
    assert (reply.kind, reply.reject) == (VOTE_REPLY, False)


def test_transfer_only_to_another_voter(host):
    """Section 3.10."""
    member = host(learners=(4,))
    assert not member.core.transfer(2)
    member.elect()
    member.acknowledge(3, 1)
    for nobody in (1, 4, 9):
        assert not member.core.transfer(nobody)
    assert member.core.transfer(3)
    assert not member.core.transfer(2)


def test_transfer_brings_the_target_up_to_date_first(host):
    """Section 3.10: the target's log must match the leader's before it campaigns."""
    member = host()
    member.elect()
    member.acknowledge(3, 1)
    assert member.core.propose([b"a"]) == 2
    assert member.core.transfer(2)
    member.drain()
    assert [m.kind for m in member.acknowledge(2, 1)] == [APPEND]
    told = member.acknowledge(2, 2)
    assert [(m.kind, m.target) for m in told if m.kind == TIMEOUT_NOW] == [(TIMEOUT_NOW, 2)]


def test_leader_takes_no_proposals_while_it_hands_over(host):
    """Section 3.10: otherwise the target might never catch up."""
    member = host()
    member.elect()
    member.acknowledge(2, 1)
    assert member.core.transfer(2)
    assert member.core.propose([b"a"]) == BUSY
    assert member.core.propose([b"a"], urgent=True) == BUSY


def test_transfer_is_given_up_after_an_election_timeout(host):
    """Section 3.10: the leader resumes when nobody took over."""
    member = host(election_ticks=5, quiesce_ticks=0)
    member.elect()
    member.acknowledge(3, 1)
    assert member.core.transfer(2)
    for _ in range(4):
        member.hear(3)
        member.core.tick()
    assert member.core.transferee == 2
    member.hear(3)
    member.core.tick()
    assert (member.core.role, member.core.transferee) == (LEADER, 0)
    assert member.core.propose([b"a"]) == 2


def test_only_the_leader_can_ask_for_an_election(host):
    """Section 3.10: anybody else's request is disregarded."""
    member = host(hard_state=HardState(1, 0, 0))
    member.step(HEARTBEAT, 2, 1)
    assert member.step(TIMEOUT_NOW, 3, 1) == []
    assert member.core.role == FOLLOWER


def test_leader_without_a_majority_steps_down(host):
    """Section 6.2: a leader steps down if an election timeout passes without a majority."""
    member = host(election_ticks=5, quiesce_ticks=0)
    member.elect()
    for _ in range(5):
        member.hear(2)
        member.core.tick()
    assert member.core.role == LEADER
    for _ in range(5):
        member.core.tick()
    assert (member.core.role, member.core.leader, member.core.term) == (FOLLOWER, 0, 1)


def test_learner_neither_keeps_a_leader_nor_campaigns(host):
    """Section 4.2.1: non-voting members are not counted and do not become leaders."""
    member = host(voters=(1, 2), learners=(3,), election_ticks=3, quiesce_ticks=0)
    member.elect()
    for _ in range(6):
        member.hear(3)
        member.core.tick()
    assert member.core.role == FOLLOWER
    learner = host(voters=(1, 2), learners=(3,), member=3, election_ticks=3)
    learner.core.campaign()
    for _ in range(50):
        learner.core.tick()
    assert (learner.core.role, learner.core.term) == (FOLLOWER, 0)
    learner.step(HEARTBEAT, 1, 1)
    learner.step(TIMEOUT_NOW, 1, 1)
    assert learner.core.role == FOLLOWER


def test_second_leader_of_a_term_stops_the_member(leader):
    """Section 3.4: at most one leader per term; a second one is a bug that must not spread."""
    with pytest.raises(AssertionError, match="two leaders"):
        leader.step(HEARTBEAT, 2, 1)
