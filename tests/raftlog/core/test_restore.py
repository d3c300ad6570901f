"""Snapshots, as the core sees them: offered by leaders, restored by members. Thesis chapter 5."""

from __future__ import annotations

import pytest

from headrace_raftlog.core.progress import PROBE, SNAPSHOT_OFFERED
from headrace_raftlog.model.entry import ENTRY_CONFIG, ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.model.group import NOT_CAUGHT_UP, GroupConfig
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.message import (
    APPEND,
    APPEND_REPLY,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    SNAPSHOT,
    VOTE,
    Message,
)

GROUP_OF_FOUR = Membership((1, 2, 3), (4,))


def of_kind(messages, kind, target=None):
    return [m for m in messages if m.kind == kind and target in (None, m.target)]


def message(member, kind, source, term, **fields):
    return Message(kind, member.core.group, source, member.member, term, **fields)


def leading(host, count=5, **options):
    """Lead term 1 with `count` entries (and the no-op) that 2 and nobody else holds."""
    member = host(quiesce_ticks=0, **options)
    member.elect(2)
    member.core.propose([b"a"] * count)
    member.drain()
    member.acknowledge(2, count + 1)
    assert member.core.commit_index == count + 1
    return member


def lagging(host, **options):
    """Lead term 1 behind a snapshot at 6, of which 3, in touch, has nothing."""
    member = leading(host, **options)
    member.compact(6)
    member.step(APPEND_REPLY, 3, 1, index=0, reject=True)
    member.drain()
    return member


# A leader offers.


def test_follower_that_lacks_what_was_compacted_is_offered_the_snapshot(host):
    """Section 5: the leader sends a snapshot when it has discarded the next entry to send."""
    member = leading(host)
    member.compact(4)
    offers = of_kind(member.step(APPEND_REPLY, 3, 1, index=0, reject=True), SNAPSHOT)
    assert [(m.target, m.index, m.log_term, m.term) for m in offers] == [(3, 4, 1, 1)]
    assert member.core.progress(3).state == SNAPSHOT_OFFERED


def test_follower_that_lacks_only_what_is_still_there_gets_entries(host):
    """Section 5: with the entry behind the snapshot at hand none is needed."""
    member = leading(host)
    member.compact(4)
    member.step(APPEND_REPLY, 3, 1, index=0, reject=True)
    (message,) = of_kind(member.acknowledge(3, 4), APPEND, 3)
    assert (message.index, message.log_term, len(message.entries)) == (4, 1, 2)


def test_nothing_but_heartbeats_goes_to_a_follower_that_fetches(host):
    """Chapter 5: entries behind a snapshot that is under way could not be appended."""
    member = lagging(host)
    member.core.propose([b"b"])
    assert {m.kind for m in member.tick(3) if m.target == 3} == {HEARTBEAT}


def test_offer_is_repeated_at_every_sign_of_life_until_it_is_acknowledged(host):
    """Hazard 19: an offer may be lost, and a fetch may fail."""
    member = lagging(host)
    for _ in range(3):
        assert len(of_kind(member.hear(3), SNAPSHOT, 3)) == 1
    member.acknowledge(3, 6)
    assert of_kind(member.hear(3), SNAPSHOT) == []
    assert member.core.progress(3).match == 6


def test_acknowledgement_of_an_older_snapshot_is_followed_by_the_offer_of_the_newer(host):
    """Hazard 19: the log begins behind 7 now, but 3 fetched the snapshot at 6."""
    member = lagging(host)
    member.core.propose([b"b", b"c"])
    member.drain()
    member.acknowledge(2, 8)
    member.compact(7)
    (offer,) = of_kind(member.acknowledge(3, 6), SNAPSHOT, 3)
    assert offer.index == 7


def test_nothing_is_offered_to_a_follower_that_is_not_heard(host):
    """A member that is down must neither get offers nor hold compaction up."""
    member = leading(host)
    member.core.report_unreachable(3)
    member.compact(6)
    member.core.propose([b"b"])
    assert of_kind(member.tick(3), SNAPSHOT) == []
    assert member.core.progress(3).state == PROBE
    assert len(of_kind(member.hear(3), SNAPSHOT, 3)) == 1


def test_what_a_fetching_follower_will_need_is_retained(host):
    """Hazard 19: else a busy leader would compact past every snapshot that is fetched."""
    member = lagging(host)
    assert member.core.retain_index() == 6
    member.core.propose([b"b"] * 3)
    member.drain()
    member.acknowledge(2, 9)
    assert member.core.retain_index() == 6
    member.hear(3)
    assert member.core.retain_index() == 6
    member.acknowledge(3, 6)
    member.acknowledge(3, 9)
    assert member.core.retain_index() == 9


def test_what_a_follower_in_reach_lacks_is_retained(host):
    """Hazard 19: a polite host does not compact what would have to be fetched then."""
    member = leading(host)
    member.acknowledge(3, 3)
    assert member.core.retain_index() == 3


def test_nothing_is_retained_for_a_follower_out_of_reach(host):
    """Hazard 19: a member that is down would make the log grow for ever."""
    member = lagging(host)
    member.core.report_unreachable(3)
    member.drain()
    assert member.core.retain_index() == 6
    member.core.propose([b"b"] * 3)
    member.drain()
    member.acknowledge(2, 9)
    assert member.core.retain_index() == 9


def test_fetching_learner_is_not_caught_up(host):
    """Section 4.2.1: a voter that has still to fetch its state would hold commitment up."""
    member = host(learners=(4,), quiesce_ticks=0)
    member.elect()
    member.core.propose([b"a"] * 5)
    member.drain()
    member.acknowledge(2, 6)
    member.compact(6)
    assert len(of_kind(member.step(APPEND_REPLY, 4, 1, index=0, reject=True), SNAPSHOT, 4)) == 1
    assert member.core.propose_membership((1, 2, 3, 4)) == NOT_CAUGHT_UP
    member.acknowledge(4, 6)
    assert member.core.propose_membership((1, 2, 3, 4)) == 7


# A member hears of a snapshot.


def test_offer_is_handed_to_the_host(host):
    """Chapter 5: a follower that lacks what was discarded takes the snapshot instead."""
    member = host(terms=(1,))
    assert of_kind(member.step(SNAPSHOT, 2, 2, index=5, log_term=2), APPEND_REPLY) == []
    (offer,) = member.offers
    assert (offer.leader, offer.index, offer.term) == (2, 5, 2)
    assert member.core.last_index == 1


def test_offer_of_what_the_log_holds_commits_it(host):
    """Section 5: the log has everything up to there, and what a snapshot holds is committed."""
    member = host(terms=(1, 1, 2))
    (reply,) = member.step(SNAPSHOT, 2, 2, index=3, log_term=2)
    assert (reply.kind, reply.reject, reply.index) == (APPEND_REPLY, False, 3)
    assert member.core.commit_index == 3
    assert member.offers == []


def test_offer_of_less_than_is_committed_is_answered_with_what_is(host):
    """Hazard 18: an old snapshot must not take anything back."""
    member = host(terms=(1, 1, 1, 1), hard_state=HardState(1, 0, 4))
    (reply,) = member.step(SNAPSHOT, 2, 1, index=2, log_term=1)
    assert (reply.kind, reply.index) == (APPEND_REPLY, 4)
    assert member.offers == []


def test_offer_of_an_older_term_is_disregarded(host):
    """Section 3.3: a request of an older term is refused."""
    member = host(terms=(1,), hard_state=HardState(3, 0, 0))
    (reply,) = member.step(SNAPSHOT, 2, 2, index=5, log_term=2)
    assert (reply.kind, reply.term) == (HEARTBEAT_REPLY, 3)
    assert member.offers == []


def test_offer_counts_as_hearing_the_leader(host):
    """Section 3.4: a follower that hears its leader does not campaign."""
    member = host(election_ticks=5)
    for _ in range(10):
        member.tick(4)
        member.step(SNAPSHOT, 2, 1, index=5, log_term=1)
    assert (member.core.term, member.core.leader) == (1, 2)


def test_offer_is_forgotten_with_its_leader(host):
    """It names a leader that the host could not ask any more."""
    member = host()
    member.core.step(message(member, SNAPSHOT, 2, 1, index=5, log_term=1))
    member.step(HEARTBEAT, 3, 2)
    assert member.offers == []


# A member restores.


def test_snapshot_takes_the_place_of_the_log(host):
    """Section 5.1: all that it covers is applied and committed."""
    member = host(terms=(1, 1))
    member.step(SNAPSHOT, 2, 2, index=5, log_term=2)
    assert member.restore(5, 2)
    core = member.core
    assert (core.commit_index, core.applied_index, core.last_index) == (5, 5, 5)
    member.drain()
    assert member.applied == []


def test_acknowledgement_of_a_snapshot_waits_for_the_disk(host):
    """Hazard 26: it promises that the snapshot will be there after a crash."""
    member = host()
    member.step(SNAPSHOT, 2, 2, index=5, log_term=2)
    member.restore(5, 2)
    assert member.core.has_ready()
    ready = member.ready()
    assert ready.messages == []
    assert ready.must_sync
    assert ready.hard_state == HardState(2, 0, 5)
    (reply,) = ready.messages_after_persist
    assert (reply.kind, reply.target, reply.index) == (APPEND_REPLY, 2, 5)


def test_entries_behind_the_snapshot_stay_if_the_log_agrees_with_it(host):
    """Section 5.1: a snapshot of a prefix of the log leaves what follows it."""
    member = host(terms=(1, 1, 2, 2))
    member.step(HEARTBEAT, 2, 2)
    assert member.restore(3, 2)
    assert member.core.last_index == 4
    assert member.terms() == [2]
    member.drain()
    member.step(HEARTBEAT, 2, 2, commit=4)
    assert [entry.index for entry in member.applied] == [4]


def test_all_entries_go_if_the_log_contradicts_the_snapshot(host):
    """Section 5.1: uncommitted entries that conflict with the snapshot are all superseded."""
    member = host(terms=(1, 1, 1, 1), hard_state=HardState(2, 0, 0))
    member.step(HEARTBEAT, 2, 2)
    assert member.restore(3, 2)
    assert (member.core.last_index, member.terms()) == (3, [])


@pytest.mark.parametrize(
    ("snapshot_term", "left", "written"), [(2, [(4, 2)], [(4, 2)]), (3, [], [])]
)
def test_entries_not_written_yet_stay_or_go_like_the_others(host, snapshot_term, left, written):
    """Section 5.1: what waits for the next Ready is part of the log."""
    member = host(terms=(1,), hard_state=HardState(3, 0, 0))
    entries = [Entry(index, 2, ENTRY_NORMAL, b"") for index in (2, 3, 4)]
    member.core.step(message(member, APPEND, 2, 3, index=1, log_term=1, entries=entries))
    assert member.restore(3, snapshot_term)
    assert member.core.last_index == 3 + len(left)
    assert [(e.index, e.term) for e in member.ready().entries] == written


def test_write_under_way_proves_nothing_about_what_a_snapshot_replaced(host):
    """Hazard 12: a late completion must not make newer entries durable."""
    member = host(hard_state=HardState(2, 0, 0))
    old = [Entry(index, 1, ENTRY_NORMAL, b"") for index in range(1, 9)]
    member.core.step(message(member, APPEND, 2, 2, entries=old))
    first = member.ready()
    member.restore(5, 2)
    second = member.ready()
    new = [Entry(index, 2, ENTRY_NORMAL, b"") for index in (6, 7)]
    member.core.step(message(member, APPEND, 2, 2, index=5, log_term=2, entries=new, commit=7))
    third = member.ready()
    member.core.persisted(first.number)
    assert not member.core.has_ready(), "6 and 7 are committed, but not durable here"
    member.core.persisted(second.number)
    assert not member.core.has_ready()
    member.core.persisted(third.number)
    member.ready()
    assert [(entry.index, entry.term) for entry in member.applied] == [(6, 2), (7, 2)]


def test_write_under_way_still_proves_what_a_snapshot_left(host):
    """Section 5.1: what stayed behind the snapshot is durable when its write is."""
    member = host(hard_state=HardState(1, 0, 0))
    entries = [Entry(index, 1, ENTRY_NORMAL, b"") for index in range(1, 7)]
    member.core.step(message(member, APPEND, 2, 1, entries=entries))
    first = member.ready()
    member.restore(4, 1)
    member.core.step(message(member, HEARTBEAT, 2, 1, commit=6))
    second = member.ready()
    assert second.committed == []
    member.core.persisted(first.number)
    member.ready()
    assert [entry.index for entry in member.applied] == [5, 6]


@pytest.mark.parametrize("index", [2, 3])
def test_snapshot_older_than_what_is_committed_is_refused(host, index):
    """Hazard 18: an old snapshot must not take anything back."""
    member = host(terms=(1, 1, 1, 1), hard_state=HardState(1, 0, 3))
    assert not member.core.restore(index, 1, Membership((1, 2, 3)))
    assert (member.core.commit_index, member.core.last_index) == (3, 4)


def test_leader_restores_nothing(leader):
    """Section 3.5: a leader never overwrites its log."""
    assert not leader.core.restore(9, 1, Membership((1, 2, 3)))
    assert leader.core.last_index == 1


def test_snapshot_of_a_term_that_was_not_heard_of_is_refused(host):
    """Hazard 30: on disk, no entry is newer than the term.

    The leader that was asked follows another one meanwhile, and gave a snapshot of its term.
    """
    member = host()
    member.step(SNAPSHOT, 2, 1, index=5, log_term=1)
    assert not member.core.restore(6, 2, Membership((1, 2, 3)))
    assert (member.core.term, member.core.last_index) == (1, 0)


def test_snapshot_of_a_term_that_is_not_written_yet_is_refused(host):
    """Hazard 30: the host writes the snapshot before the hard state of the next Ready."""
    member = host()
    member.core.step(message(member, HEARTBEAT, 2, 2))
    assert not member.core.restore(6, 2, Membership((1, 2, 3)))
    member.ready()
    assert member.restore(6, 2)


def test_term_and_vote_outlive_a_snapshot(host):
    """Section 3.4: a vote is given once in a term."""
    member = host()
    member.step(VOTE, 3, 4)
    member.step(HEARTBEAT, 2, 4)
    member.restore(6, 4)
    assert member.ready().hard_state == HardState(4, 3, 6)


def test_member_restored_without_a_leader_acknowledges_when_it_hears_one(host):
    """Chapter 5: its leader finds out by the next append."""
    member = host(terms=(1,))
    member.step(SNAPSHOT, 2, 1, index=5, log_term=1)
    member.core.lose_leader()
    assert member.restore(5, 1)
    assert of_kind(member.drain(), APPEND_REPLY) == []
    (reply,) = member.step(APPEND, 3, 2, index=5, log_term=1)
    assert (reply.kind, reply.reject, reply.index) == (APPEND_REPLY, False, 5)


def test_append_older_than_the_snapshot_is_acknowledged_up_to_it(host):
    """Hazard 17: the log has a beginning; what lies before it is committed."""
    member = host()
    member.step(SNAPSHOT, 2, 1, index=5, log_term=1)
    member.restore(5, 1)
    member.drain()
    entries = [Entry(index, 1, ENTRY_NORMAL, b"") for index in (3, 4)]
    (reply,) = member.step(APPEND, 2, 1, index=2, log_term=1, entries=entries)
    assert (reply.kind, reply.reject, reply.index) == (APPEND_REPLY, False, 5)
    assert member.core.last_index == 5


def test_membership_comes_with_the_snapshot(host):
    """Section 5.1: the snapshot includes the latest configuration up to its last index."""
    member = host(voters=(), member=4)
    member.step(SNAPSHOT, 2, 1, index=5, log_term=1)
    assert member.restore(5, 1, GROUP_OF_FOUR)
    assert member.core.membership == GROUP_OF_FOUR
    assert member.ready().membership == GROUP_OF_FOUR


@pytest.mark.parametrize(("snapshot_term", "kept"), [(1, True), (2, False)])
def test_memberships_behind_the_snapshot_stay_only_with_their_entries(host, snapshot_term, kept):
    """Section 4.1: a server uses the latest configuration in its log."""
    newer = Membership((1, 2, 3), (4, 5))
    entries = [Entry(index, 1, ENTRY_NORMAL, b"") for index in range(1, 5)]
    entries.append(Entry(5, 1, ENTRY_CONFIG, newer.encode()))
    member = host(entries=tuple(entries), hard_state=HardState(2, 0, 0))
    assert member.core.membership == newer
    assert member.restore(3, snapshot_term, GROUP_OF_FOUR)
    assert member.core.membership == (newer if kept else GROUP_OF_FOUR)


def test_joint_membership_comes_with_the_snapshot(host):
    """Section 4.3: a change that is half done is part of the state at that index."""
    joint = Membership((1, 2), (), (1, 2, 3))
    member = host()
    member.step(SNAPSHOT, 2, 1, index=5, log_term=1)
    member.restore(5, 1, joint)
    assert member.core.membership.is_joint
    assert member.core.is_changing


def test_member_restarts_behind_its_snapshot(host):
    """Section 5.1: after a restart the log begins behind the snapshot."""
    member = host()
    member.step(SNAPSHOT, 2, 1, index=5, log_term=1)
    member.restore(5, 1)
    member.drain()
    core = member.core
    again = type(core)(
        GroupConfig(core.group, 1, (1, 2, 3)), core.options, member.log, HardState(1, 0, 5), 5, 1
    )
    assert (again.commit_index, again.applied_index, again.last_index) == (5, 5, 5)


def test_state_machine_that_lies_before_the_snapshot_is_refused(host):
    """Hazard 32: what was compacted could never be applied."""
    member = host()
    member.step(SNAPSHOT, 2, 1, index=5, log_term=1)
    member.restore(5, 1)
    core = member.core
    with pytest.raises(ValueError, match="applied 4 lies before the snapshot at 5"):
        type(core)(
            GroupConfig(core.group, 1, (1, 2, 3)),
            core.options,
            member.log,
            HardState(1, 0, 5),
            4,
            1,
        )
