"""Requirements of the thesis on changes of membership: one test per sentence. Chapter 4."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.entry import ENTRY_CONFIG, ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.model.group import (
    BUSY,
    CANDIDATE,
    FOLLOWER,
    LEADER,
    NOT_CAUGHT_UP,
    NOT_LEADER,
    PRE_CANDIDATE,
)
from headrace_raftlog.model.limits import GROUP_MEMBERS_MAX
from headrace_raftlog.model.membership import Membership, decode_membership
from headrace_raftlog.model.message import (
    APPEND,
    APPEND_REPLY,
    HEARTBEAT,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    TIMEOUT_NOW,
    VOTE,
    VOTE_REPLY,
    Message,
)


def of_kind(messages, kind):
    return [message for message in messages if message.kind == kind]


def message(member, kind, source, term, **fields):
    return Message(kind, member.core.group, source, member.member, term, **fields)


def config(index, term, voters, learners=(), outgoing=()):
    membership = Membership(voters, learners, outgoing)
    return Entry(index, term, ENTRY_CONFIG, membership.encode())


def leading(host, learners=(4, 5), **options):
    """Lead term 1 of 1, 2, 3 with learners; everyone holds the no-op."""
    member = host(learners=learners, quiesce_ticks=0, **options)
    member.elect()
    for peer in (2, 3, *learners):
        member.acknowledge(peer, 1)
    return member


# When a membership is in force.


def test_server_uses_the_newest_membership_in_its_log(host):
    """Section 4.1: the new configuration takes effect on each server as soon as it is added."""
    member = leading(host)
    assert member.core.propose_membership((1, 2, 3, 4), (5,)) == 2
    assert member.core.membership == Membership((1, 2, 3, 4), (5,), (1, 2, 3))
    follower = host(member=2)
    follower.step(APPEND, 1, 1, entries=[config(1, 1, (1, 2, 3), (4,))])
    assert follower.core.membership == Membership((1, 2, 3), (4,))
    assert follower.core.commit_index == 0


def test_membership_goes_with_its_entry(host):
    """Section 4.1: a server must fall back to the previous one when the entry is removed."""
    member = host(member=2)
    entries = [config(1, 1, (1, 2, 3), (4,)), config(2, 1, (1, 2, 3, 4), (), (1, 2, 3))]
    member.step(APPEND, 1, 1, entries=entries)
    assert member.core.membership.is_joint
    replaced = [Entry(2, 2, ENTRY_NORMAL, b"")]
    member.step(APPEND, 3, 2, index=1, log_term=1, entries=replaced)
    assert member.core.membership == Membership((1, 2, 3), (4,))
    member.step(APPEND, 3, 2, index=0, entries=[Entry(1, 2, ENTRY_NORMAL, b"")])
    assert member.core.membership == Membership((1, 2, 3))


def test_host_is_told_of_every_change_and_of_its_end(host):
    """Section 4.1: hosts talk to whoever belongs to the group now."""
    member = host(member=2)
    member.core.step(message(member, APPEND, 1, 1, entries=[config(1, 1, (1, 2, 3), (4,))]))
    assert member.ready().membership == Membership((1, 2, 3), (4,))
    member.core.step(message(member, APPEND, 3, 2, entries=[Entry(1, 2, ENTRY_NORMAL, b"")]))
    assert member.ready().membership == Membership((1, 2, 3))
    assert member.ready().membership is None


def test_membership_is_found_in_the_log_after_a_restart(host):
    """Section 4.1: the newest entry counts, committed or not."""
    entries = (config(1, 1, (1, 2, 3), (4,)), config(2, 1, (1, 2, 3, 4), (), (1, 2, 3)))
    member = host(entries=entries, hard_state=HardState(1, 0, 1))
    assert member.core.membership == Membership((1, 2, 3, 4), (), (1, 2, 3))
    assert member.core.is_changing


def test_membership_of_an_applied_position_is_known_for_its_snapshot(host):
    """Section 5.1 and hazard 18: a snapshot has the membership of its index, not the newest."""
    member = host(member=2)
    member.step(APPEND, 1, 1, entries=[config(1, 1, (1, 2, 3), (4,))], commit=1)
    entries = [config(2, 1, (1, 2, 3, 4), (), (1, 2, 3))]
    member.step(APPEND, 1, 1, index=1, log_term=1, entries=entries, commit=1)
    assert member.core.membership.is_joint
    assert member.core.membership_at(1) == Membership((1, 2, 3), (4,))
    member.step(HEARTBEAT, 1, 1, commit=2)
    assert member.core.membership_at(2).is_joint


# One change at a time, and only with an entry of the own term.


def test_change_waits_for_the_first_commit_of_the_term(host):
    """raft-dev, 10 July 2015: else two leaders' changes from one configuration may be disjoint."""
    member = host(learners=(4,), quiesce_ticks=0)
    member.elect()
    assert member.core.propose_membership((1, 2, 3)) == BUSY
    member.acknowledge(2, 1)
    assert member.core.propose_membership((1, 2, 3)) == 2


def test_second_change_waits_for_the_first(host):
    """Section 4.1: a change may begin only when the previous one is committed."""
    member = leading(host)
    assert member.core.propose_membership((1, 2, 3), (4,)) == 2
    member.drain()
    assert member.core.propose_membership((1, 2, 3)) == BUSY
    member.acknowledge(2, 2)
    assert member.core.propose_membership((1, 2, 3)) == 3


def test_second_change_waits_for_the_final_entry_of_a_joint_one(host):
    """Section 4.3: a joint configuration is half a change."""
    member = leading(host)
    member.core.propose_membership((1, 2, 3, 4), (5,))
    member.drain()
    member.acknowledge(2, 2)
    member.acknowledge(4, 2)
    assert (member.core.commit_index, member.core.last_index) == (2, 3)
    assert member.core.propose_membership((1, 2, 3), (5,)) == BUSY
    member.acknowledge(2, 3)
    member.acknowledge(4, 3)
    assert not member.core.is_changing
    assert member.core.propose_membership((1, 2, 3), (5,)) == 4


def test_change_and_transfer_exclude_each_other(host):
    """Section 3.10: a leader that hands over begins nothing new."""
    member = leading(host)
    member.core.propose_membership((1, 2, 3), (4,))
    assert not member.core.transfer(2)
    member.drain()
    member.acknowledge(2, 2)
    assert member.core.transfer(2)
    assert member.core.propose_membership((1, 2, 3)) == BUSY


def test_follower_changes_nothing(host):
    """Section 4.1: the leader does."""
    assert host().core.propose_membership((1, 2)) == NOT_LEADER


def test_present_membership_needs_no_change(host):
    member = leading(host)
    assert member.core.propose_membership((3, 1, 2), (5, 4)) == 0
    assert member.core.last_index == 1


@pytest.mark.parametrize(
    ("voters", "learners"),
    [
        ((), ()),
        (tuple(range(1, 9)), ()),
        ((1, 1), ()),
        ((1, 2), (2,)),
        ((0, 1), ()),
        ((1, 2), (3,)),
        ((1, 2, 3), tuple(range(4, 5 + GROUP_MEMBERS_MAX))),
    ],
)
def test_membership_that_no_group_can_have_is_an_error(leader, voters, learners):
    with pytest.raises(ValueError, match=r"voter|learners|member"):
        leader.core.propose_membership(voters, learners)
    assert leader.core.last_index == 1


# Catching up.


def test_new_voter_must_have_been_a_learner(leader):
    """Section 4.2.1: a server joins as a non-voting member first."""
    assert leader.core.propose_membership((1, 2, 3, 4)) == NOT_CAUGHT_UP


def test_new_voter_must_have_the_log(host):
    """Section 4.2.1: the leader replicates entries to it, and only then counts it."""
    member = leading(host, promote_lag_max=2)
    member.core.propose([b"a"] * 4)
    member.drain()
    member.acknowledge(2, 5)
    member.acknowledge(4, 2)
    assert member.core.propose_membership((1, 2, 3, 4)) == NOT_CAUGHT_UP
    member.acknowledge(4, 3)
    assert member.core.propose_membership((1, 2, 3, 4)) == 6


def test_unreachable_learner_is_not_promoted(host):
    """Section 4.2.1: it would be needed at once, and be away."""
    member = leading(host)
    member.core.report_unreachable(4)
    assert member.core.propose_membership((1, 2, 3, 4), (5,)) == NOT_CAUGHT_UP
    member.hear(4)
    assert member.core.propose_membership((1, 2, 3, 4), (5,)) == 2


def test_new_learner_gets_the_log_from_its_beginning(leader):
    """Section 4.2.1: the leader replicates to it what everyone has."""
    leader.core.propose_membership((1, 2, 3), (4,))
    (probe,) = [m for m in of_kind(leader.drain(), APPEND) if m.target == 4]
    assert probe.entries == []
    (message,) = leader.step(APPEND_REPLY, 4, 1, index=probe.index, reject=True)
    assert [entry.index for entry in message.entries] == [1, 2]


def test_learner_is_added_by_one_entry(leader):
    """Section 4.2.1: who does not count needs no joint configuration."""
    leader.core.propose_membership((1, 2, 3), (4,))
    leader.drain()
    leader.acknowledge(2, 2)
    assert not leader.core.is_changing
    assert decode_membership(leader.log.items[1].data) == Membership((1, 2, 3), (4,))


# Joint decisions.


def test_joint_entry_needs_majorities_of_old_and_new(host):
    """Section 4.3: agreement requires majorities of both configurations."""
    member = leading(host)
    member.core.propose_membership((1, 4, 5))
    member.drain()
    member.acknowledge(2, 2)
    member.acknowledge(3, 2)
    assert member.core.commit_index == 1
    member.acknowledge(4, 2)
    assert member.core.commit_index == 2


def test_commands_need_both_majorities_as_well(host):
    """Section 4.3: log entries are replicated to all servers in both configurations."""
    member = leading(host)
    member.core.propose_membership((1, 4, 5))
    member.core.propose([b"a"])
    member.drain()
    member.acknowledge(4, 3)
    member.acknowledge(5, 3)
    assert member.core.commit_index == 1
    member.acknowledge(3, 3)
    assert member.core.commit_index == 3


def test_election_needs_both_majorities(host):
    """Section 4.3: any server of both configurations needs separate majorities for election."""
    entries = (config(1, 1, (1, 4, 5), (), (1, 2, 3)),)
    member = host(entries=entries, hard_state=HardState(1, 0, 0))
    member.core.campaign()
    assert {m.target for m in of_kind(member.drain(), PRE_VOTE)} == {2, 3, 4, 5}
    member.step(PRE_VOTE_REPLY, 2, 2)
    member.step(PRE_VOTE_REPLY, 3, 2)
    assert member.core.role == PRE_CANDIDATE
    member.step(PRE_VOTE_REPLY, 4, 2)
    assert member.core.role == CANDIDATE
    member.step(VOTE_REPLY, 4, 2)
    member.step(VOTE_REPLY, 5, 2)
    assert member.core.role == CANDIDATE
    member.step(VOTE_REPLY, 3, 2)
    assert member.core.role == LEADER


def test_election_is_lost_with_one_majority(host):
    """Section 4.3: without either half there is no leader."""
    entries = (config(1, 1, (1, 4, 5), (), (1, 2, 3)),)
    member = host(entries=entries, hard_state=HardState(1, 0, 0))
    member.core.campaign()
    member.drain()
    member.step(PRE_VOTE_REPLY, 4, 1, reject=True)
    assert member.core.role == PRE_CANDIDATE
    member.step(PRE_VOTE_REPLY, 5, 1, reject=True)
    assert member.core.role == FOLLOWER


@pytest.mark.parametrize(
    ("heard", "role"), [((2, 4), LEADER), ((2, 3), FOLLOWER), ((4, 5), FOLLOWER)]
)
def test_leader_needs_both_majorities_to_go_on(host, heard, role):
    """Sections 6.2 and 4.3: a leader without a majority of either steps down."""
    member = leading(host, election_ticks=4)
    member.core.propose_membership((1, 4, 5))
    member.drain()
    for _ in range(8):
        for peer in heard:
            member.hear(peer)
        member.tick()
    assert member.core.role == role


def test_leader_ends_the_joint_membership_by_itself(host):
    """Section 4.3: once it is committed, the leader replicates the new configuration alone."""
    member = leading(host)
    member.core.propose_membership((1, 4, 5))
    member.drain()
    member.acknowledge(2, 2)
    member.acknowledge(4, 2)
    assert decode_membership(member.log.items[2].data) == Membership((1, 4, 5))
    assert member.core.membership == Membership((1, 4, 5))
    member.acknowledge(4, 3)
    assert (member.core.commit_index, member.core.is_changing) == (3, False)


def test_old_voters_count_no_more_for_the_final_entry(host):
    """Section 4.3: the new configuration is committed under its own rules."""
    member = leading(host)
    member.core.propose_membership((1, 4, 5))
    member.drain()
    member.acknowledge(2, 2)
    member.acknowledge(4, 2)
    member.acknowledge(2, 3)
    member.acknowledge(3, 3)
    assert member.core.commit_index == 2


def test_later_leader_ends_a_change_that_it_found(host):
    """Section 4.3: if the leader fails, its successor has the joint entry, or nobody needs it."""
    entries = (config(1, 1, (1, 2, 3), (), (1, 2, 3, 4)),)
    member = host(entries=entries, hard_state=HardState(1, 0, 0))
    member.elect()
    assert member.core.last_index == 2, "only the no-op: nothing of this term is committed"
    member.acknowledge(2, 2)
    assert member.core.last_index == 2, "2 of 4 is no majority of the old voters"
    member.acknowledge(3, 2)
    assert decode_membership(member.log.items[2].data) == Membership((1, 2, 3))


# Leaving.


def test_who_leaves_gets_entries_until_its_leaving_is_committed(host):
    """Section 4.2.2: else it would time out before the others can do without it."""
    member = leading(host)
    member.core.propose_membership((1, 2), (4, 5))
    messages = member.drain()
    assert 3 in {m.target for m in of_kind(messages, APPEND)}
    messages = member.acknowledge(2, 2)
    assert [m.entries[0].index for m in of_kind(messages, APPEND) if m.target == 3] == [3]
    assert member.core.progress(3) is not None
    member.acknowledge(3, 3)
    messages = member.acknowledge(2, 3)
    (last,) = [m for m in messages if m.target == 3]
    assert (last.kind, last.commit) == (HEARTBEAT, 3)
    assert member.core.progress(3) is None


def test_answers_of_who_left_are_disregarded(host):
    """Hazard 8: it does not count any more."""
    member = leading(host)
    member.core.propose_membership((1, 2), (4, 5))
    member.drain()
    member.acknowledge(2, 2)
    member.acknowledge(2, 3)
    assert not member.core.is_changing
    member.core.propose([b"a"])
    member.drain()
    member.acknowledge(3, 4)
    assert member.core.commit_index == 3
    assert member.core.progress(3) is None


def test_who_left_and_knows_it_does_not_campaign(host):
    """Section 4.2.3: removed servers must not disrupt the cluster."""
    member = host(member=3, election_ticks=3)
    entries = [config(1, 1, (1, 2), (), (1, 2, 3)), config(2, 1, (1, 2))]
    member.step(APPEND, 1, 1, entries=entries, commit=2)
    assert of_kind(member.tick(50), PRE_VOTE) == []
    member.core.campaign()
    member.step(TIMEOUT_NOW, 1, 1)
    assert (member.core.role, member.core.term) == (FOLLOWER, 1)


def test_who_leaves_may_be_needed_until_its_leaving_is_committed(host):
    """Section 4.2.2: a server that is not part of its newest configuration starts elections.

    It may be the only one with the newest entries that is alive.
    """
    member = host(voters=(1, 2, 3, 4, 5), member=4)
    entries = [config(1, 1, (1, 2, 3), (), (1, 2, 3, 4, 5)), config(2, 1, (1, 2, 3))]
    member.step(APPEND, 1, 1, entries=entries, commit=1)
    member.core.lose_leader()
    assert {m.target for m in of_kind(member.tick(50), PRE_VOTE)} == {1, 2, 3}
    member.step(PRE_VOTE_REPLY, 2, 2)
    assert member.core.role == PRE_CANDIDATE, "its own vote does not count"
    member.step(PRE_VOTE_REPLY, 3, 2)
    member.step(VOTE_REPLY, 2, 2)
    assert member.core.role == CANDIDATE
    member.step(VOTE_REPLY, 3, 2)
    assert member.core.role == LEADER
    member.acknowledge(2, 3)
    assert member.core.commit_index == 1
    messages = member.acknowledge(3, 3)
    assert member.core.role == FOLLOWER, "the change is over, and it has left"
    assert [m.target for m in of_kind(messages, TIMEOUT_NOW)] in ([2], [3])


def test_leader_that_leaves_does_not_count_itself(host):
    """Section 4.2.2: it manages a cluster that does not include itself."""
    member = leading(host)
    member.core.propose_membership((2, 3), (4, 5))
    member.drain()
    member.acknowledge(2, 2)
    assert member.core.commit_index == 1, "1 and 2 are a majority of the old voters only"
    member.acknowledge(3, 2)
    assert (member.core.commit_index, member.core.last_index) == (2, 3)
    member.acknowledge(2, 3)
    assert member.core.commit_index == 2


def test_leader_that_leaves_hands_over_once_that_is_committed(host):
    """Section 4.2.2: it steps down when the new configuration is committed."""
    member = leading(host)
    member.core.propose_membership((2, 3), (4, 5))
    member.drain()
    for peer in (2, 3):
        member.acknowledge(peer, 2)
    assert member.core.role == LEADER
    member.acknowledge(2, 3)
    messages = member.acknowledge(3, 3)
    assert member.core.role == FOLLOWER
    assert len(of_kind(messages, TIMEOUT_NOW)) == 1
    member.core.campaign()
    assert member.tick(100) == []


def test_vote_is_given_to_whoever_is_not_in_the_own_membership(host):
    """Section 4.2.3: a server may not know yet that the candidate was added."""
    member = host()
    (reply,) = member.step(VOTE, 9, 1)
    assert (reply.kind, reply.reject) == (VOTE_REPLY, False)


def test_learner_votes_though_it_may_not_count(host):
    """Section 4.2.1: it may have been promoted without having heard of it."""
    member = host(voters=(1, 2), learners=(3,), member=3)
    (reply,) = member.step(VOTE, 2, 1)
    assert reply.reject is False


def test_entries_of_another_leader_are_taken_from_whoever_is_not_a_member(host):
    """Section 4.2.2: servers process requests of servers outside their configuration."""
    member = host()
    (reply,) = member.step(APPEND, 9, 1, entries=[Entry(1, 1, ENTRY_NORMAL, b"")])
    assert (reply.kind, reply.reject, member.core.leader) == (APPEND_REPLY, False, 9)


def test_group_grows_from_one_and_shrinks_to_one(host):
    """Hazard 23: the last peer, and the first."""
    member = host(voters=(1,), learners=(2,), quiesce_ticks=0)
    member.core.campaign()
    member.drain()
    member.acknowledge(2, 1)
    assert member.core.propose_membership((1, 2)) == 2
    member.drain()
    assert member.core.commit_index == 1
    member.acknowledge(2, 2)
    member.acknowledge(2, 3)
    assert (member.core.membership, member.core.is_changing) == (Membership((1, 2)), False)
    assert member.core.propose_membership((1,)) == 4
    member.drain()
    assert member.core.commit_index == 3, "1 alone is no majority of 1 and 2"
    member.acknowledge(2, 4)
    assert (member.core.membership, member.core.commit_index) == (Membership((1,)), 5)
    assert member.core.propose([b"a"]) == 6
    member.drain()
    assert member.core.commit_index == 6


def test_damaged_membership_stops_the_member(host):
    """A member that guessed who counts would break everything."""
    member = host()
    with pytest.raises(ValueError, match="too short"):
        member.step(APPEND, 2, 1, entries=[Entry(1, 1, ENTRY_CONFIG, b"?")])
