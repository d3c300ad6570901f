"""Entries that a lagging follower lacks, while the leader's disk has yet to give them."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.model.limits import PROBE_BYTES_MAX
from headrace_raftlog.model.log import GroupLog
from headrace_raftlog.model.message import APPEND, APPEND_REPLY, HEARTBEAT


class SlowLog(GroupLog):
    """A view of which only entries from `memory` on, and those that were read, are at hand."""

    def __init__(self, log):
        self.log = log
        self.memory = 11
        self.read_up_to = 0
        self.asked = []
        self.lengths = {}

    def first_index(self):
        return self.log.first_index()

    def last_index(self):
        return self.log.last_index()

    def term_at(self, index):
        return self.log.term_at(index)

    def length_of(self, index):
        return self.lengths.get(index, 1)

    def config_entries(self):
        return self.log.config_entries()

    def at_hand(self, low, high, bytes_max):
        if low >= self.memory:
            return high
        if low < self.read_up_to:
            return min(high, self.read_up_to)
        self.asked.append(low)
        return low

    def entries(self, low, high, bytes_max):
        assert low >= self.memory or high <= self.read_up_to, "this would wait for the disk"
        return self.log.entries(low, high, bytes_max)


@pytest.fixture
def slow():
    """The leader's log, of which ten old entries are on the disk only."""
    return []


@pytest.fixture
def leader(host, slow):
    def view(log):
        slow.append(SlowLog(log))
        return slow[0]

    leader = host(terms=(1,) * 10, quiesce_ticks=0, view=view, applied=10)
    leader.elect()
    leader.acknowledge(2, 11)
    return leader


def appends(messages, target):
    return [message for message in messages if message.kind == APPEND and message.target == target]


def reject(leader, hint):
    return leader.step(
        APPEND_REPLY, 3, leader.core.term, index=10, reject=True, hint_index=hint, hint_term=0
    )


def test_probe_does_not_read_an_entry_that_is_too_long_for_it(leader, slow):
    slow[0].lengths[1] = PROBE_BYTES_MAX + 1
    (probe,) = appends(reject(leader, 0), 3)
    assert (probe.index, probe.entries) == (0, [])
    assert slow[0].asked == []
    assert not appends(leader.acknowledge(3, 0), 3)
    assert slow[0].asked == [1], "read once, when the match is known"


def test_follower_that_lags_gets_nothing_until_its_entries_were_read(leader, slow):
    assert not appends(reject(leader, 0), 3)
    assert slow[0].asked == [1]
    assert not appends(leader.tick(3), 3)
    slow[0].read_up_to = 5
    leader.core.entries_read()
    (message,) = appends(leader.drain(), 3)
    assert [entry.index for entry in message.entries] == [1, 2, 3, 4]


def test_others_get_theirs_meanwhile(leader):
    reject(leader, 0)
    leader.core.propose([b"new"])
    messages = leader.drain()
    assert [entry.index for entry in appends(messages, 2)[0].entries] == [12]
    assert not appends(messages, 3)
    assert leader.core.commit_index == 11
    leader.acknowledge(2, 12)
    assert leader.core.commit_index == 12


def test_heartbeats_go_on_while_entries_are_read(leader):
    reject(leader, 0)
    heard = {message.target for message in leader.tick(2) if message.kind == HEARTBEAT}
    assert heard == {2, 3}


def test_pipelining_stops_where_the_entries_at_hand_end_and_goes_on(leader, slow):
    reject(leader, 0)
    slow[0].read_up_to = 3
    leader.core.entries_read()
    assert len(appends(leader.drain(), 3)) == 1
    assert not appends(leader.step(APPEND_REPLY, 3, leader.core.term, index=2), 3)
    assert slow[0].asked[-1] == 3
    slow[0].read_up_to = 11
    leader.core.entries_read()
    sent = [e.index for message in appends(leader.drain(), 3) for e in message.entries]
    assert sent == [*range(3, 12)]


def test_reads_mean_nothing_to_who_does_not_lead(host):
    member = host()
    member.core.entries_read()
    assert not member.core.has_ready()


def test_leader_has_nothing_to_do_while_entries_are_read(leader):
    reject(leader, 0)
    assert not leader.core.has_ready()
    assert leader.core.propose([b"x"]) == 12
    assert leader.log.items[0] == Entry(1, 1, ENTRY_NORMAL, b"old")


@pytest.fixture
def behind(host, slow):
    """A member that starts with ten committed entries to apply, all on the disk only."""

    def view(log):
        slow.append(SlowLog(log))
        return slow[0]

    return host(terms=(1,) * 10, hard_state=HardState(1, 0, 10), view=view)


def test_committed_entries_are_applied_as_they_are_read(behind, slow):
    behind.drain()
    assert (behind.applied, slow[0].asked) == ([], [1])
    assert not behind.core.has_ready()
    slow[0].read_up_to = 5
    behind.core.entries_read()
    behind.drain()
    assert [entry.index for entry in behind.applied] == [1, 2, 3, 4]
    assert slow[0].asked == [1, 5]
    slow[0].read_up_to = 11
    behind.core.entries_read()
    behind.drain()
    assert [entry.index for entry in behind.applied] == list(range(1, 11))
    assert behind.core.applied_index == 10


def test_member_votes_and_follows_while_what_it_has_to_apply_is_read(behind, slow):
    behind.drain()
    behind.step(APPEND, 2, 2, index=10, log_term=1, commit=11, entries=[Entry(11, 2, 0, b"new")])
    behind.drain()
    assert (behind.core.commit_index, behind.core.leader, behind.applied) == (11, 2, [])
    slow[0].read_up_to = 11
    behind.core.entries_read()
    behind.drain()
    assert [entry.index for entry in behind.applied] == list(range(1, 12))


def test_a_snapshot_takes_the_place_of_what_is_being_read(behind):
    behind.drain()
    behind.step(APPEND, 2, 2, index=10, log_term=1, commit=10)
    behind.drain()
    assert behind.restore(20, 2)
    behind.step(APPEND, 2, 2, index=20, log_term=2, commit=21, entries=[Entry(21, 2, 0, b"new")])
    behind.drain()
    assert [entry.index for entry in behind.applied] == [21]
