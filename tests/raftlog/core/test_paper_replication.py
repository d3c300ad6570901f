"""Requirements of the thesis on log replication and commitment: one test per sentence."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.entry import ENTRY_NOOP, ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.model.errors import ContradictedError
from headrace_raftlog.model.group import NOT_LEADER
from headrace_raftlog.model.message import APPEND, APPEND_REPLY, HEARTBEAT, Message

GROUP = 7


def entries(*pairs):
    return [Entry(index, term, ENTRY_NORMAL, b"%d/%d" % (index, term)) for index, term in pairs]


def appends(messages, target):
    return [message for message in messages if message.kind == APPEND and message.target == target]


def test_leader_begins_its_term_with_an_empty_entry(host):
    """Section 6.4: each leader commits a blank no-op entry at the start of its term."""
    member = host(terms=(1, 1))
    messages = member.elect()
    assert member.log.items[-1] == Entry(3, 2, ENTRY_NOOP, b"")
    assert [message.entries[-1].index for message in appends(messages, 2)] == [3]


def test_leader_serves_only_after_its_no_op_is_applied(host):
    """Section 6.4: before that it does not know which entries are committed."""
    member = host(terms=(1, 1))
    member.elect()
    assert not member.core.ready_to_serve
    member.acknowledge(2, 3)
    assert member.core.ready_to_serve
    assert [entry.index for entry in member.applied] == [1, 2, 3]


def test_follower_does_not_take_proposals(host):
    """Section 3.4: only the leader serves clients."""
    assert host().core.propose([b"a"]) == NOT_LEADER


def test_proposal_is_appended_and_sent_to_all_in_parallel(leader):
    """Section 3.5: the leader appends the command and issues AppendEntries in parallel."""
    assert leader.core.propose([b"a", b"b"]) == 2
    messages = leader.drain()
    for peer in (2, 3):
        (message,) = appends(messages, peer)
        assert (message.index, message.log_term, message.term) == (1, 1, 1)
        assert [entry.data for entry in message.entries] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("voters", "holders", "committed"),
    [
        ((1,), (), True),
        ((1, 2), (), False),
        ((1, 2), (2,), True),
        ((1, 2, 3), (), False),
        ((1, 2, 3), (3,), True),
        ((1, 2, 3, 4), (2,), False),
        ((1, 2, 3, 4), (2, 4), True),
        ((1, 2, 3, 4, 5), (2,), False),
        ((1, 2, 3, 4, 5), (2, 3), True),
    ],
)
def test_entry_is_committed_once_a_majority_holds_it(host, voters, holders, committed):
    """Section 3.5: an entry is committed once it is replicated on a majority."""
    member = host(voters=voters)
    member.elect()
    for holder in holders:
        member.acknowledge(holder, 1)
    assert (member.core.commit_index == 1) is committed


def test_follower_learns_a_new_commit_index_at_once(leader):
    """Section 3.5: the leader includes the highest committed index it knows."""
    leader.core.propose([b"a"])
    leader.drain()
    messages = leader.acknowledge(2, 2)
    assert [(message.kind, message.target, message.commit) for message in messages] == [
        (HEARTBEAT, 2, 2)
    ]


def test_heartbeat_never_commits_what_a_follower_may_not_hold(leader):
    """Section 3.5: a heartbeat does not check the log, so it goes no further than the match."""
    leader.core.propose([b"a"])
    leader.drain()
    leader.acknowledge(2, 2)
    leader.core.tick()
    commits = {message.target: message.commit for message in leader.drain()}
    assert commits == {2: 2, 3: 1}


def test_follower_applies_in_order_what_it_knows_committed(host):
    """Section 3.5: it applies committed entries to its state machine in log order."""
    member = host(committed_bytes_max=1)
    member.step(APPEND, 2, 1, entries=entries((1, 1), (2, 1), (3, 1)), commit=2)
    assert [entry.index for entry in member.applied] == [1, 2]
    member.step(HEARTBEAT, 2, 1, commit=3)
    assert [entry.index for entry in member.applied] == [1, 2, 3]


@pytest.mark.parametrize(
    ("terms", "index", "log_term", "hint"),
    [
        ((1, 1), 3, 1, (2, 1)),
        ((1, 1, 2, 2), 4, 3, (4, 2)),
        ((1, 1, 2, 2), 4, 1, (2, 1)),
        ((), 5, 1, (0, 0)),
        ((3, 3, 3), 3, 2, (0, 0)),
    ],
)
def test_follower_refuses_where_the_previous_entry_does_not_match(
    host, terms, index, log_term, hint
):
    """Section 3.5: it refuses without that entry; the answer says where the logs may agree."""
    member = host(terms=terms)
    (reply,) = member.step(
        APPEND, 2, 9, index=index, log_term=log_term, entries=entries((index + 1, 9)), commit=9
    )
    assert (reply.kind, reply.reject, reply.index) == (APPEND_REPLY, True, index)
    assert (reply.hint_index, reply.hint_term) == hint
    assert tuple(member.terms()) == terms
    assert member.core.commit_index == 0


@pytest.mark.parametrize(
    ("terms", "index", "log_term", "sent", "after"),
    [
        ((1, 1), 2, 1, (), [1, 1]),
        ((1, 1), 1, 1, ((2, 2),), [1, 2]),
        ((1, 1), 0, 0, ((1, 1),), [1, 1]),
        ((1, 1, 1), 0, 0, ((1, 1), (2, 1)), [1, 1, 1]),
        ((1, 1, 1), 1, 1, ((2, 1), (3, 2)), [1, 1, 2]),
        ((1, 2, 2, 2), 1, 1, ((2, 3),), [1, 3]),
        ((), 0, 0, ((1, 1), (2, 1)), [1, 1]),
    ],
)
def test_follower_replaces_only_what_conflicts(host, terms, index, log_term, sent, after):
    """Section 3.5 (figure 3.1): on a conflict delete it and all that follow; else keep all."""
    member = host(terms=terms)
    (reply,) = member.step(APPEND, 2, 9, index=index, log_term=log_term, entries=entries(*sent))
    assert (reply.reject, reply.index) == (False, index + len(sent))
    assert member.terms() == after


@pytest.mark.parametrize(("commit", "expected"), [(1, 1), (2, 2), (3, 2), (9, 2)])
def test_follower_commits_at_most_to_the_last_new_entry(host, commit, expected):
    """Section 3.5 (figure 3.1): commitIndex = min(leaderCommit, index of last new entry)."""
    member = host(terms=(1, 1, 1, 1))
    member.step(APPEND, 2, 2, index=1, log_term=1, entries=entries((2, 1)), commit=commit)
    assert member.core.commit_index == expected


def test_commit_index_never_falls(host):
    """Section 3.8: a later message with an older commit index changes nothing."""
    member = host(terms=(1, 1))
    member.step(HEARTBEAT, 2, 1, commit=2)
    member.step(HEARTBEAT, 2, 1, commit=1)
    member.step(APPEND, 2, 1, index=1, log_term=1, entries=entries((2, 1)), commit=0)
    assert member.core.commit_index == 2


def test_committed_entry_that_a_leader_contradicts_stops_the_member(host):
    """Section 3.6.3: leader completeness; contradicting it must not spread."""
    member = host(terms=(1, 1))
    member.step(HEARTBEAT, 2, 1, commit=2)
    with pytest.raises(ContradictedError, match="committed"):
        member.core.step(
            Message(APPEND, GROUP, 3, 1, 2, index=2, log_term=1, entries=entries((2, 2)), commit=0)
        )


def test_acknowledgement_leaves_only_after_the_entries_are_durable(host):
    """Section 3.8: an entry is persistent before it is acknowledged."""
    member = host(hard_state=HardState(1, 0, 0))
    member.core.step(Message(APPEND, GROUP, 2, 1, 1, entries=entries((1, 1))))
    first = member.ready()
    assert first.must_sync
    assert first.messages == []
    assert [message.kind for message in first.messages_after_persist] == [APPEND_REPLY]
    # Once more, while the first write is under way: this answer must wait for it as well.
    member.core.step(Message(APPEND, GROUP, 2, 1, 1, entries=entries((1, 1))))
    second = member.ready()
    assert (second.entries, second.must_sync, second.messages) == ([], False, [])
    assert [message.index for message in second.messages_after_persist] == [1]
    member.core.persisted(second.number)
    member.core.step(Message(APPEND, GROUP, 2, 1, 1, entries=entries((1, 1))))
    assert [message.index for message in member.ready().messages] == [1]


def test_only_durable_entries_are_applied(host):
    """Section 3.8: a member does not apply what it could lose."""
    member = host(hard_state=HardState(1, 0, 0))
    member.core.step(Message(APPEND, GROUP, 2, 1, 1, entries=entries((1, 1)), commit=1))
    ready = member.ready()
    assert (member.core.commit_index, ready.committed) == (1, [])
    member.core.persisted(ready.number)
    assert [entry.index for entry in member.ready().committed] == [1]


def test_written_commit_index_stays_within_what_is_durable(host):
    """Section 3.8: else a torn write could declare entries committed that were to be replaced."""
    member = host(terms=(1, 1))
    member.core.step(
        Message(APPEND, GROUP, 2, 1, 2, index=1, log_term=1, entries=entries((2, 2)), commit=2)
    )
    ready = member.ready()
    assert (member.core.commit_index, ready.hard_state.commit) == (2, 1)


def test_leader_writes_in_parallel_and_counts_itself_when_durable(host):
    """Section 10.2.1: the leader may replicate before its own disk is done."""
    member = host(voters=(1, 2, 3, 4), quiesce_ticks=0)
    member.elect()
    for peer in (2, 3, 4):
        member.acknowledge(peer, 1)
    member.core.propose([b"a"])
    ready = member.ready()
    assert {message.target for message in ready.messages} == {2, 3, 4}
    for peer in (2, 3):
        member.core.step(Message(APPEND_REPLY, GROUP, peer, 1, 1, index=2))
    assert member.core.commit_index == 1
    member.core.persisted(ready.number)
    assert member.core.commit_index == 2


def test_entries_of_earlier_terms_are_not_committed_by_counting(host):
    """Section 3.6.2: only entries of the leader's current term are committed by counting."""
    member = host(terms=(1, 2), hard_state=HardState(2, 0, 0))
    member.elect()
    member.acknowledge(2, 2)
    assert member.core.commit_index == 0
    member.acknowledge(2, 3)
    assert member.core.commit_index == 3


def test_leader_tries_again_until_the_follower_matches(host):
    """Section 3.5: after a refusal the leader goes back and tries again."""
    member = host(terms=(1, 1, 3, 3), append_entries_max=2)
    (probe,) = appends(member.elect(2), 2)
    assert probe.index == 4
    messages = member.step(APPEND_REPLY, 2, 4, index=4, reject=True, hint_index=2, hint_term=2)
    (probe,) = appends(messages, 2)
    assert (probe.index, len(probe.entries)) == (2, 2)
    messages = member.step(APPEND_REPLY, 2, 4, index=2, reject=True, hint_index=0, hint_term=0)
    (probe,) = appends(messages, 2)
    assert (probe.index, len(probe.entries)) == (0, 2)
    messages = member.acknowledge(2, 2)
    assert [message.index for message in appends(messages, 2)] == [2, 4]


def test_refusal_of_another_probe_is_disregarded(host):
    """Section 3.5: requests may be repeated or reordered; an old refusal must not move back."""
    member = host(terms=(1, 1, 1))
    member.elect(2)
    member.step(APPEND_REPLY, 2, 2, index=1, reject=True)
    assert member.core.progress(2).next_index == 4
    member.acknowledge(2, 4)
    member.step(APPEND_REPLY, 2, 2, index=3, reject=True)
    progress = member.core.progress(2)
    assert (progress.match, progress.next_index) == (4, 5)


def test_repeated_and_old_acknowledgements_change_nothing(leader):
    """Section 3.3: requests are idempotent."""
    leader.core.propose([b"a"])
    leader.drain()
    leader.acknowledge(2, 2)
    before = leader.core.commit_index
    assert leader.acknowledge(2, 2) == []
    leader.acknowledge(2, 1)
    leader.acknowledge(2, 0)
    assert (leader.core.commit_index, leader.core.progress(2).match) == (before, 2)


def test_acknowledgement_beyond_the_log_is_disregarded(leader):
    """Section 3.5: nobody can hold what the leader of the term does not."""
    leader.acknowledge(2, 99)
    assert (leader.core.progress(2).match, leader.core.commit_index) == (1, 1)


def test_acknowledgement_of_an_earlier_term_is_disregarded(host):
    """Section 3.3: replies of a stale term do not count."""
    member = host(terms=(1, 1), hard_state=HardState(4, 0, 0))
    member.elect()
    member.step(APPEND_REPLY, 2, 4, index=3)
    assert (member.core.term, member.core.progress(2).match) == (5, 0)


def test_new_leader_forgets_what_it_knew_of_followers(leader):
    """Section 3.5: nextIndex starts anew after each election."""
    leader.step(HEARTBEAT, 3, 2)
    for _ in range(10):
        leader.core.tick()
    leader.drain()
    leader.elect()
    progress = leader.core.progress(2)
    assert (leader.core.term, progress.match) == (3, 0)


def test_leader_never_overwrites_its_own_entries(leader):
    """Section 3.5: a leader never deletes entries in its log."""
    leader.core.propose([b"a"])
    leader.drain()
    leader.step(APPEND_REPLY, 2, 1, index=0, reject=True)
    leader.step(APPEND_REPLY, 3, 1, index=1, reject=True)
    assert leader.terms() == [1, 1]


def test_learner_receives_but_does_not_count(host):
    """Section 4.2.1: entries are replicated to non-voting members, who do not count."""
    member = host(voters=(1, 2), learners=(3,))
    messages = member.elect()
    assert len(appends(messages, 3)) == 1
    member.acknowledge(3, 1)
    assert member.core.commit_index == 0
    member.acknowledge(2, 1)
    assert member.core.commit_index == 1
