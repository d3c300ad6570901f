"""Reads without an entry in the log. Thesis section 6.4."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.limits import READ_TIMEOUTS, READS_WAITING_MAX
from headrace_raftlog.model.message import (
    HEARTBEAT,
    HEARTBEAT_REPLY,
    PRE_VOTE_REPLY,
    READ_INDEX,
    READ_INDEX_REPLY,
    VOTE,
)


def of_kind(messages, kind):
    return [message for message in messages if message.kind == kind]


def rounds(messages):
    """Return the rounds of the heartbeats among messages, one per heartbeat."""
    return [message.context for message in of_kind(messages, HEARTBEAT)]


def answer(leader, peer, number):
    """Let `peer` answer the heartbeats of round `number`."""
    term = leader.core.term
    return leader.step(HEARTBEAT_REPLY, peer, term, index=leader.core.last_index, context=number)


def ask(leader, context):
    """Ask at the leader and return the round that confirms it."""
    assert leader.core.read_index(context)
    return max(rounds(leader.drain()))


# At the leader.


def test_read_waits_until_a_majority_answered_a_round_of_heartbeats(leader):
    """Section 6.4, step 3: the leader makes sure that it has not been superseded."""
    number = ask(leader, 7)
    assert number > 0
    assert leader.read_states == []
    answer(leader, 2, number)
    assert leader.read_states == [(7, 1)]


def test_answers_to_an_earlier_round_confirm_nothing(leader):
    """Hazard 34: a majority that answered before the read began may have another leader since."""
    first = ask(leader, 7)
    second = ask(leader, 8)
    assert second > first
    answer(leader, 2, first)
    assert leader.read_states == [(7, 1)]
    answer(leader, 3, first)
    answer(leader, 2, first)
    assert leader.read_states == [(7, 1)]
    answer(leader, 3, second)
    assert leader.read_states == [(7, 1), (8, 1)]


def test_answers_to_plain_heartbeats_confirm_nothing(leader):
    """Hazard 34: a heartbeat that left before the read says nothing about it."""
    ask(leader, 7)
    leader.hear(2)
    leader.hear(3)
    assert leader.read_states == []


def test_answers_to_appends_confirm_nothing(leader):
    """Hazard 34: an append may have been answered before the read began."""
    leader.core.propose([b"a"])
    leader.drain()
    ask(leader, 7)
    leader.acknowledge(2, 2)
    leader.acknowledge(3, 2)
    assert leader.read_states == []


def test_one_member_does_not_confirm_for_two(host):
    """Section 6.4, step 3: a majority of the cluster, each member once."""
    member = host(voters=(1, 2, 3, 4, 5), quiesce_ticks=0)
    member.elect()
    member.acknowledge(2, 1)
    member.acknowledge(3, 1)
    number = ask(member, 7)
    answer(member, 2, number)
    answer(member, 2, number)
    assert member.read_states == []
    answer(member, 4, number)
    assert member.read_states == [(7, 1)]


def test_late_answer_to_an_earlier_round_takes_nothing_back(host):
    """Section 6.4: messages may overtake each other."""
    member = host(voters=(1, 2, 3, 4, 5), quiesce_ticks=0)
    member.elect()
    member.acknowledge(2, 1)
    member.acknowledge(3, 1)
    first = ask(member, 7)
    second = ask(member, 8)
    answer(member, 2, second)
    answer(member, 2, first)
    answer(member, 3, second)
    assert member.read_states == [(7, 1), (8, 1)]


def test_learner_confirms_nothing(host):
    """Section 4.2.1: who does not vote does not count."""
    member = host(voters=(1, 2), learners=(3,), quiesce_ticks=0)
    member.elect()
    member.acknowledge(2, 1)
    number = ask(member, 7)
    answer(member, 3, number)
    assert member.read_states == []
    answer(member, 2, number)
    assert member.read_states == [(7, 1)]


def test_later_round_confirms_earlier_reads(leader):
    """Section 6.4: a newer answer says the same about everything before it."""
    ask(leader, 7)
    answer(leader, 2, ask(leader, 8))
    assert leader.read_states == [(7, 1), (8, 1)]


def test_read_is_answered_at_the_commit_index_of_its_beginning(leader):
    """Section 6.4, step 2: the leader saves its commit index as readIndex."""
    number = ask(leader, 7)
    leader.core.propose([b"a"])
    leader.drain()
    leader.acknowledge(2, 2)
    assert leader.core.commit_index == 2
    answer(leader, 2, number)
    assert leader.read_states == [(7, 1)]


def test_reads_of_one_turn_share_a_round(leader):
    """Section 6.4: one round of heartbeats serves any number of reads."""
    for context in (7, 8, 9):
        leader.core.read_index(context)
    assert len(rounds(leader.drain())) == 2
    answer(leader, 2, 1)
    assert leader.read_states == [(7, 1), (8, 1), (9, 1)]


def test_heartbeats_of_a_round_are_repeated(leader):
    """Section 6.4: they may get lost."""
    number = ask(leader, 7)
    assert rounds(leader.tick()) == [number, number]
    answer(leader, 2, number)
    assert rounds(leader.tick()) == [0, 0]


def test_leader_answers_nothing_before_it_committed_an_entry_of_its_term(host):
    """Section 6.4, step 1: before its no-op is committed it does not know what is."""
    member = host(terms=(1, 1), quiesce_ticks=0)
    member.elect()
    assert member.core.read_index(7)
    assert rounds(member.tick()) == [0, 0]
    messages = member.acknowledge(2, 3)
    (number, _) = [context for context in rounds(messages) if context]
    answer(member, 3, number)
    assert member.read_states == [(7, 3)]


def test_sole_voter_asks_nobody(host):
    """Section 6.4: it is its own majority."""
    member = host(voters=(1,))
    member.core.campaign()
    member.drain()
    member.core.read_index(7)
    member.drain()
    assert member.read_states == [(7, 1)]


def test_deposed_leader_loses_its_reads(leader):
    """Section 6.4: it may have been superseded when they began."""
    number = ask(leader, 7)
    leader.core.read_index(8)
    leader.step(HEARTBEAT, 2, 2)
    assert leader.reads_lost == [7, 8]
    answer(leader, 3, number)
    assert leader.read_states == []


def test_rounds_of_an_earlier_leadership_confirm_nothing_in_a_later_one(leader):
    """Hazard 34: a late answer to the round of another term."""
    number = ask(leader, 7)
    leader.step(HEARTBEAT, 2, 2)
    leader.elect()
    leader.acknowledge(2, leader.core.last_index)
    again = ask(leader, 8)
    leader.step(HEARTBEAT_REPLY, 2, 1, context=number)
    leader.step(HEARTBEAT_REPLY, 3, leader.core.term, context=number)
    assert leader.read_states == []
    answer(leader, 2, again)
    assert [context for context, _ in leader.read_states] == [8]


def test_leader_without_a_majority_loses_its_reads(host):
    """Section 6.4 with the check of the quorum: a leader cut off must not answer, nor keep them."""
    member = host(election_ticks=5, quiesce_ticks=0)
    member.elect()
    member.acknowledge(2, 1)
    ask(member, 7)
    member.tick(10)
    assert member.reads_lost == [7]


@pytest.mark.parametrize("half", [(2, 3), (4, 5)])
def test_read_needs_both_majorities_while_the_membership_is_joint(host, half):
    """Section 4.3: every decision needs majorities of old and new voters."""
    member = host(learners=(4, 5), quiesce_ticks=0)
    member.elect()
    for peer in (2, 3, 4, 5):
        member.acknowledge(peer, 1)
    assert member.core.propose_membership((1, 4, 5)) == 2
    member.drain()
    number = ask(member, 7)
    for peer in half:
        answer(member, peer, number)
    assert member.read_states == []
    answer(member, 6 - half[0], number)
    assert member.read_states == [(7, 1)]


def test_silent_leader_wakes_to_confirm_a_read(host):
    """Section 6.4: silence confirms nothing."""
    member = host(quiesce_ticks=2)
    member.elect()
    member.acknowledge(2, 1)
    member.acknowledge(3, 1)
    member.hear(2)
    member.hear(3)
    member.tick(3)
    assert member.core.quiesced
    number = ask(member, 7)
    assert member.read_states == []
    answer(member, 2, number)
    assert member.read_states == [(7, 1)]


def test_leader_does_not_fall_silent_with_reads_under_way(host):
    """A silent leader would repeat no round."""
    member = host(quiesce_ticks=3, election_ticks=50)
    member.elect()
    member.acknowledge(2, 1)
    member.acknowledge(3, 1)
    number = ask(member, 7)
    assert rounds(member.tick(10)) == [number] * 20
    assert not member.core.quiesced


def test_reads_that_wait_are_bounded(leader):
    """More are refused at once."""
    for context in range(1, READS_WAITING_MAX + 1):
        assert leader.core.read_index(context)
    assert not leader.core.read_index(READS_WAITING_MAX + 1)
    (refusal,) = of_kind(leader.step(READ_INDEX, 2, 1, context=5), READ_INDEX_REPLY)
    assert (refusal.target, refusal.context, refusal.reject) == (2, 5, True)
    answer(leader, 2, 1)
    assert len(leader.read_states) == READS_WAITING_MAX
    assert leader.core.read_index(READS_WAITING_MAX + 2)


# At a follower.


def following(host, **options):
    member = host(**options)
    member.step(HEARTBEAT, 2, 1)
    return member


def test_follower_asks_its_leader(host):
    """Section 6.4: followers can help with reads by asking the leader for the readIndex."""
    member = following(host)
    assert member.core.read_index(7)
    (question,) = member.drain()
    assert (question.kind, question.target, question.context) == (READ_INDEX, 2, 7)
    member.step(READ_INDEX_REPLY, 2, 1, context=7, index=4)
    assert member.read_states == [(7, 4)]


def test_leader_confirms_a_follower_s_question_like_its_own(leader):
    """Section 6.4: the leader goes through the same steps."""
    (number, _) = rounds(leader.step(READ_INDEX, 3, 1, context=7))
    (reply,) = of_kind(answer(leader, 2, number), READ_INDEX_REPLY)
    assert (reply.target, reply.context, reply.index, reply.reject) == (3, 7, 1, False)
    assert leader.read_states == []


@pytest.mark.parametrize("source", [3, 1])
def test_answer_of_somebody_who_does_not_lead_is_disregarded(host, source):
    """Section 6.4: only the leader knows."""
    member = following(host)
    member.core.read_index(7)
    member.step(READ_INDEX_REPLY, source, 1, context=7, index=4)
    assert member.read_states == []


def test_answer_that_nobody_waits_for_is_disregarded(host):
    """Hazard 34: a repeated answer must not answer anything else."""
    member = following(host)
    member.core.read_index(7)
    for _ in range(2):
        member.step(READ_INDEX_REPLY, 2, 1, context=7, index=4)
    member.step(READ_INDEX_REPLY, 2, 1, context=8, index=4)
    assert member.read_states == [(7, 4)]


def test_refused_question_is_lost(host):
    """The leader has too many."""
    member = following(host)
    member.core.read_index(7)
    member.step(READ_INDEX_REPLY, 2, 1, context=7, reject=True)
    assert (member.read_states, member.reads_lost) == ([], [7])


def test_question_is_lost_with_the_leader(host):
    """Section 6.4: the new leader was not asked."""
    member = following(host)
    member.core.read_index(7)
    member.step(HEARTBEAT, 3, 2)
    assert member.reads_lost == [7]
    member.step(READ_INDEX_REPLY, 2, 1, context=7, index=4)
    assert member.read_states == []


@pytest.mark.parametrize("heard_again", [False, True])
def test_answer_counts_that_comes_after_the_leader_was_given_up(host, heard_again):
    """Section 6.4: it is as true as before; behind a slow link a leader is lost now and then."""
    member = following(host)
    member.core.read_index(7)
    member.core.campaign()
    assert member.core.leader == 0
    member.step(READ_INDEX_REPLY, 3, 1, context=7, index=5)  # who was not asked
    if heard_again:
        member.step(HEARTBEAT, 2, 1)
    member.step(READ_INDEX_REPLY, 2, 1, context=7, index=4)
    assert (member.read_states, member.reads_lost) == ([(7, 4)], [])


def test_question_is_lost_with_the_term(host):
    """Section 6.4: nobody answers questions of a term that is over."""
    member = following(host)
    member.core.read_index(7)
    member.core.campaign()
    assert member.reads_lost == []
    member.step(PRE_VOTE_REPLY, 3, 2)
    assert member.core.term == 2
    member.drain()
    assert member.reads_lost == [7]
    member.step(READ_INDEX_REPLY, 2, 1, context=7, index=4)
    assert member.read_states == []


def test_question_is_refused_while_no_leader_is_known(host):
    """There is nobody to ask."""
    member = host()
    assert not member.core.read_index(7)
    member.step(HEARTBEAT, 2, 1)
    member.step(VOTE, 3, 2, context=1)
    assert not member.core.read_index(8)


def test_question_of_an_older_term_is_not_answered(leader):
    """Section 3.3: who asked followed another leader."""
    leader.step(HEARTBEAT, 2, 2)
    leader.elect()
    assert of_kind(leader.step(READ_INDEX, 3, 1, context=7), READ_INDEX_REPLY) == []
    assert not leader.core.has_ready()


def test_follower_answers_no_question(host):
    """Section 6.4: only the leader knows."""
    member = following(host)
    assert member.step(READ_INDEX, 3, 1, context=7) == []


def test_unanswered_question_is_lost_after_some_election_timeouts(host):
    """It, or its answer, got lost: that must not count against the bound for ever."""
    member = following(host, election_ticks=5)
    member.core.read_index(7)
    for tick in range(5 * READ_TIMEOUTS):
        assert member.reads_lost == []
        member.core.tick()
        if tick == 2:
            member.core.read_index(8)
        member.step(HEARTBEAT, 2, 1)
    assert member.reads_lost == [7]
    member.step(READ_INDEX_REPLY, 2, 1, context=7, index=1)
    member.step(READ_INDEX_REPLY, 2, 1, context=8, index=1)
    assert member.read_states == [(8, 1)]
    for context in range(10, 10 + READS_WAITING_MAX):
        assert member.core.read_index(context)
    assert not member.core.read_index(9)


def test_unanswered_question_is_lost_when_the_group_falls_silent(host):
    """A leader that owed an answer would not fall silent, and a silent follower has no timer."""
    member = following(host)
    member.core.read_index(7)
    member.step(HEARTBEAT, 2, 1, quiesce=True)
    assert member.core.quiesced
    assert member.reads_lost == [7]


def test_silent_follower_wakes_its_leader_with_a_question(host):
    """The question is a message like any other."""
    member = host(quiesce_ticks=2)
    member.elect()
    member.acknowledge(2, 1)
    member.acknowledge(3, 1)
    member.hear(2)
    member.hear(3)
    member.tick(3)
    assert member.core.quiesced
    messages = member.step(READ_INDEX, 2, 1, context=7)
    assert not member.core.quiesced
    assert {message.target for message in of_kind(messages, HEARTBEAT)} == {2, 3}


def test_heartbeat_answer_names_the_round(host):
    """Section 6.4: the leader must know which heartbeat was answered."""
    member = following(host)
    (reply,) = member.step(HEARTBEAT, 2, 1, context=9)
    assert (reply.kind, reply.context) == (HEARTBEAT_REPLY, 9)


def test_answer_to_an_old_leader_names_no_round(host):
    """Hazard 34: who follows another term confirms nothing."""
    member = following(host)
    member.step(HEARTBEAT, 3, 2)
    (reply,) = member.step(HEARTBEAT, 2, 1, context=9)
    assert (reply.kind, reply.term, reply.context) == (HEARTBEAT_REPLY, 2, 0)
