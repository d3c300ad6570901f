"""Bounds of what is sent, kept and handed out."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.entry import HardState
from headrace_raftlog.model.group import BUSY, QUEUED, CoreOptions, GroupConfig
from headrace_raftlog.model.limits import ENTRY_COST_BYTES, PROBE_BYTES_MAX
from headrace_raftlog.model.message import APPEND, APPEND_REPLY, HEARTBEAT, HEARTBEAT_REPLY


def appends(messages, target=2):
    return [message for message in messages if message.kind == APPEND and message.target == target]


def leading(host, **options):
    member = host(quiesce_ticks=0, **options)
    member.elect()
    member.acknowledge(2, member.core.last_index)
    member.acknowledge(3, 1)
    return member


def test_one_append_holds_at_most_so_many_entries(host):
    member = leading(host, append_entries_max=2)
    member.core.propose([b"a"] * 5)
    assert [len(message.entries) for message in appends(member.drain())] == [2, 2, 1]


def test_one_append_holds_at_most_so_many_bytes_but_never_nothing(host):
    member = leading(host, append_bytes_max=10)
    member.core.propose([b"a" * 4, b"b" * 4, b"c" * 4, b"d" * 50, b"e"])
    sent = [[len(entry.data) for entry in message.entries] for message in appends(member.drain())]
    assert sent == [[4, 4], [4], [50], [1]]


def test_proposals_of_one_turn_share_an_append(host):
    member = leading(host)
    member.core.propose([b"a"])
    member.core.propose([b"b"])
    (message,) = appends(member.drain())
    assert [entry.data for entry in message.entries] == [b"a", b"b"]


def test_pipelining_stops_at_the_inflight_bound_and_goes_on_with_each_answer(host):
    member = leading(host, append_entries_max=1, inflight_max=2)
    member.core.propose([b"a"] * 5)
    assert [message.index for message in appends(member.drain())] == [1, 2]
    assert [message.index for message in appends(member.acknowledge(2, 2))] == [3]
    assert [message.index for message in appends(member.acknowledge(2, 4))] == [4, 5]
    assert len(member.core.progress(2).inflight) == 2


def test_pipelining_stops_at_the_inflight_bytes_bound(host):
    member = leading(host, append_entries_max=1, inflight_bytes_max=10)
    member.core.propose([b"a" * 6] * 4)
    assert len(appends(member.drain())) == 2
    assert member.core.progress(2).inflight_bytes == 12
    assert len(appends(member.acknowledge(2, 3))) == 2
    member.acknowledge(2, 5)
    assert member.core.progress(2).inflight_bytes == 0


def test_probing_sends_one_append_until_something_is_heard(host):
    member = leading(host, append_entries_max=1)
    member.core.report_unreachable(2)
    member.core.propose([b"a"] * 3)
    assert appends(member.drain()) == []
    assert [message.index for message in appends(member.hear(2))] == [1]
    member.core.propose([b"b"])
    assert appends(member.drain()) == []


def test_lost_appends_are_noticed_by_an_empty_one_after_a_heartbeat(host):
    member = leading(host, inflight_max=1)
    member.core.propose([b"a"])
    member.drain()
    (probe,) = appends(member.hear(2))
    assert (probe.index, probe.entries) == (2, [])
    messages = member.step(APPEND_REPLY, 2, 1, index=2, reject=True, hint_index=1, hint_term=1)
    (message,) = appends(messages)
    assert (message.index, len(message.entries)) == (1, 1)


def test_answer_to_a_heartbeat_older_than_the_newest_entries_asks_for_nothing(host):
    member = leading(host)
    member.acknowledge(2, member.core.last_index)
    before = member.core.last_index
    member.core.propose([b"on its way"])
    member.drain()
    answer = member.step(HEARTBEAT_REPLY, 2, member.core.term, index=before)
    assert appends(answer) == []


def test_unreachable_peer_that_is_no_member_is_ignored(host):
    member = leading(host)
    member.core.report_unreachable(9)
    assert member.core.progress(9) is None


def test_probe_goes_on_with_what_came_after_the_heartbeat(leader):
    leader.core.report_unreachable(2)
    leader.core.tick()
    [beat] = [m for m in leader.drain() if m.kind == HEARTBEAT and m.target == 2]
    leader.core.propose([b"a"])
    assert [m.target for m in leader.drain() if m.kind == APPEND] == [3]
    answer = leader.step(HEARTBEAT_REPLY, 2, 1, index=beat.index)
    assert [(m.target, len(m.entries)) for m in answer] == [(2, 1)]


def test_one_proposal_waits_however_long_it_is(host):
    size = 100 + ENTRY_COST_BYTES
    member = leading(host, uncommitted_bytes_max=size, queued_bytes_max=size)
    assert member.core.propose([bytes(100)]) == 2
    assert member.core.propose([bytes(10_000)]) == QUEUED
    assert member.core.propose([bytes(1)]) == BUSY
    member.drain()
    member.acknowledge(2, 2)
    assert member.core.last_index == 3


def test_proposals_wait_while_too_much_is_uncommitted(host):
    size = 100 + ENTRY_COST_BYTES
    member = leading(host, uncommitted_bytes_max=2 * size, queued_bytes_max=2 * size)
    blob = bytes(100)
    assert member.core.propose([blob]) == 2
    assert member.core.propose([blob, blob]) == QUEUED
    assert member.core.propose([blob]) == BUSY
    assert member.core.last_index == 2
    member.drain()
    member.acknowledge(2, 2)
    assert member.core.last_index == 4
    assert member.core.uncommitted_bytes == 2 * size
    member.acknowledge(2, 4)
    assert member.core.uncommitted_bytes == 0
    assert member.core.propose([blob]) == 5


def test_nothing_passes_a_proposal_that_waits(host):
    """A small one that would fit the window goes behind a large one that does not."""
    member = leading(host, uncommitted_bytes_max=500)
    assert member.core.propose([b"a" * 100]) == 2
    assert member.core.propose([b"b" * 200]) == QUEUED
    assert member.core.propose([b"c"]) == QUEUED
    member.drain()
    member.acknowledge(2, 2)
    assert [entry.data[:1] for entry in member.log.items[1:]] == [b"a", b"b", b"c"]


def test_urgent_proposals_pass_those_that_wait(host):
    member = leading(host, uncommitted_bytes_max=ENTRY_COST_BYTES + 1)
    for blob in (b"a", b"b"):
        member.core.propose([blob])
    assert member.core.propose([b"x"], urgent=True) == QUEUED
    assert member.core.propose([b"y"], urgent=True) == QUEUED
    member.drain()
    for index in range(2, 6):
        member.acknowledge(2, index)
    assert [entry.data for entry in member.applied[1:]] == [b"a", b"x", b"y", b"b"]


def test_urgent_proposals_have_room_of_their_own(host):
    size = 1 + ENTRY_COST_BYTES
    member = leading(host, uncommitted_bytes_max=size, queued_bytes_max=size, urgent_bytes_max=size)
    assert [member.core.propose([b"a"]) for _ in range(3)] == [2, QUEUED, BUSY]
    assert member.core.propose([b"x"], urgent=True) == QUEUED
    assert member.core.propose([b"x"], urgent=True) == BUSY


def test_waiting_proposals_are_lost_with_the_leadership(host):
    member = leading(host, uncommitted_bytes_max=1)
    member.core.propose([b"a"])
    member.core.propose([b"b"])
    member.step(HEARTBEAT, 2, 2)
    member.elect()
    member.acknowledge(2, member.core.last_index)
    assert [entry.data for entry in member.log.items] == [b"", b"a", b""]


def test_proposal_larger_than_the_bound_is_taken_alone(host):
    member = leading(host, uncommitted_bytes_max=10)
    assert member.core.propose([bytes(1000)]) == 2
    assert member.core.propose([b"a"]) == QUEUED


def test_uncommitted_bytes_are_forgotten_with_the_leadership(host):
    member = leading(host, uncommitted_bytes_max=10)
    member.core.propose([bytes(1000)])
    member.step(HEARTBEAT, 2, 2)
    assert member.core.uncommitted_bytes == 0


def test_empty_proposal_is_an_error(host):
    with pytest.raises(ValueError, match="empty"):
        leading(host).core.propose([])


def test_committed_entries_are_handed_out_in_bounded_pieces(host):
    member = host(voters=(1,), committed_bytes_max=10)
    member.core.campaign()
    member.drain()
    member.core.propose([b"a" * 6, b"b" * 4, b"c" * 20, b"d"])
    member.core.persisted(member.ready().number)
    handed = []
    while member.core.has_ready():
        handed.append([len(entry.data) for entry in member.ready().committed])
    assert handed == [[6, 4], [20], [1]]


def test_applied_beyond_what_was_handed_out_is_a_bug(host):
    member = leading(host)
    with pytest.raises(AssertionError, match="handed out"):
        member.core.applied(5)


@pytest.mark.parametrize(
    ("terms", "hard_state", "applied", "match"),
    [
        ((1, 1), HardState(1, 0, 3), 0, "commit 3"),
        ((1, 1), HardState(1, 0, 1), 5, "applied 5"),
        ((1, 3), HardState(2, 0, 0), 0, "term 2 is older"),
    ],
)
def test_contradictory_recovered_state_is_refused(host, terms, hard_state, applied, match):
    with pytest.raises(ValueError, match=match):
        host(terms=terms, hard_state=hard_state, applied=applied)


def test_stranger_waits_to_be_admitted(host):
    """It neither campaigns nor asks, however long nobody is heard."""
    member = host(voters=(), member=4)
    for _ in range(50):
        member.core.tick()
    member.core.campaign()
    assert member.drain() == []


def test_restarted_member_applies_from_its_commit_hint(host):
    member = host(terms=(1, 1, 1), hard_state=HardState(1, 0, 2), applied=1)
    member.drain()
    assert [entry.index for entry in member.applied] == [2]


def test_messages_of_other_groups_and_for_other_members_are_disregarded(host):
    member = host()
    config = GroupConfig(8, 2, (1, 2, 3))
    other = type(member.core)(config, CoreOptions(), member.log, HardState(0, 0, 0), 0, 1)
    other.campaign()
    for message in other.ready().messages:
        member.core.step(message)
    assert not member.core.has_ready()


def test_long_entry_is_sent_once_however_many_heartbeats_are_answered_meanwhile(host):
    member = leading(host)
    member.core.propose([b"a" * (PROBE_BYTES_MAX + 1), b"b"])
    member.drain()
    member.core.report_unreachable(2)
    for _ in range(3):  # probes until one is answered; each may be under way for long
        (probe,) = appends(member.hear(2))
        assert (probe.index, probe.entries) == (1, [])
    (sent,) = appends(member.acknowledge(2, 1))
    assert [len(entry.data) for entry in sent.entries] == [PROBE_BYTES_MAX + 1, 1]
    for _ in range(3):
        (question,) = appends(member.hear(2))
        assert (question.index, question.entries) == (3, [])


def test_probe_takes_as_many_entries_as_fit(host):
    member = leading(host)
    member.core.propose([b"a" * (PROBE_BYTES_MAX - 1), b"b", b"c"])
    member.drain()
    member.core.report_unreachable(2)
    (probe,) = appends(member.hear(2))
    assert [entry.index for entry in probe.entries] == [2, 3]
