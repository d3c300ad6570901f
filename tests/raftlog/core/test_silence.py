"""Groups that are idle while a link is cut, or a node is down."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_raftlog.model.entry import HardState
from headrace_raftlog.model.group import FOLLOWER, LEADER, PRE_CANDIDATE
from headrace_raftlog.model.limits import ASKED_PATIENT, ASKED_SLOWER_MAX, DOUBTS_MAX, GREETINGS_MAX
from headrace_raftlog.model.message import (
    APPEND,
    APPEND_REPLY,
    FORCED,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    VOTE,
    VOTE_REPLY,
)

ELECTION_TICKS = 10
QUIESCE_TICKS = 20
SETTLE_TICKS = 4 * ELECTION_TICKS + 2 * QUIESCE_TICKS


class Idle:
    """Nodes 1 to 3 with one member each, and sessions between them that can be lost.

    Attributes:
        members: of nodes that run.
        sent: messages that arrived, or were refused by a session that is lost.
    """

    def __init__(self, host, seed, sessions=True):
        self._host = host
        self._seed = seed
        self._sessions = sessions
        self._lost = set()
        self.nodes_up = {number: {1, 2, 3} - {number} for number in (1, 2, 3)}
        self.members: dict[int, Any] = {}
        self.sent = 0
        for number in (1, 2, 3):
            self.start(number)
        self.members[1].core.campaign()
        self.tick(SETTLE_TICKS)
        assert self.silent() == {1, 2, 3}
        assert self.leaders() == {1}

    def start(self, number, disk=None):
        """Run a member, of what its disk holds."""
        kept: dict[str, Any] = {}
        if disk is not None:
            kept["entries"] = tuple(disk.log.items)
            kept["hard_state"] = HardState(disk.core.term, disk.core.vote, 0)
        member = self._host(
            **kept,
            member=number,
            seed=1000 * number + self._seed,
            election_ticks=ELECTION_TICKS,
            quiesce_ticks=QUIESCE_TICKS,
        )
        if self._sessions:
            member.core.watch_nodes(self.nodes_up[number])
        self.members[number] = member

    def tick(self, count):
        for _ in range(count):
            messages = []
            for member in self.members.values():
                if not member.core.quiesced:
                    messages += member.tick()
            self.carry(messages)

    def carry(self, messages):
        messages = [*messages, *(m for each in self.members.values() for m in each.drain())]
        while messages:
            message = messages.pop(0)
            link = frozenset((message.source, message.target))
            if link in self._lost or message.target not in self.members:
                self.members[message.source].core.report_unreachable(message.target)
                continue
            self.sent += 1
            self.members[message.target].core.step(message)
            messages += self.members[message.target].drain()

    def cut(self, one, other):
        self._lost.add(frozenset((one, other)))
        self._tell(one, other, False)
        self._tell(other, one, False)
        self.carry([])

    def heal(self, one, other):
        self._lost.discard(frozenset((one, other)))
        self._tell(one, other, True)
        self._tell(other, one, True)
        self.carry([])

    def crash(self, number):
        member = self.members.pop(number)
        for other in self.members:
            self._tell(other, number, False)
        self.carry([])
        return member

    def _tell(self, number, peer, up):
        """Do for one member what a host owes it when a session begins or ends."""
        if number not in self.members:
            return
        (self.nodes_up[number].add if up else self.nodes_up[number].discard)(peer)
        core = self.members[number].core
        if core.role == LEADER and up:
            core.peer_up(peer)
        elif core.role == LEADER:
            core.peer_down(peer)
        elif core.leader == peer and not up:
            core.lose_leader()
        elif core.leader in (0, peer):
            core.wake()

    def leaders(self):
        return {n for n, member in self.members.items() if member.core.role == LEADER}

    def silent(self):
        return {n for n, member in self.members.items() if member.core.quiesced}

    def messages_in(self, ticks):
        before = self.sent
        self.tick(ticks)
        return self.sent - before


@pytest.mark.parametrize("sessions", [True, False])
@pytest.mark.parametrize("seed", range(100))
def test_one_cut_link_deposes_no_leader_that_has_a_quorum(host, seed, sessions):
    idle = Idle(host, seed, sessions)
    terms = [member.core.term for member in idle.members.values()]
    idle.cut(1, 2)
    for _ in range(20):
        idle.tick(2 * ELECTION_TICKS)
        assert idle.leaders() == {1}
    assert [member.core.term for member in idle.members.values()] == terms
    idle.heal(1, 2)
    idle.tick(SETTLE_TICKS)
    assert idle.leaders() == {1}
    assert {member.core.leader for member in idle.members.values()} == {1}
    assert idle.silent() == {1, 2, 3}


def test_groups_behind_a_cut_link_cost_next_to_nothing(host):
    groups = [Idle(host, seed) for seed in range(50)]
    for idle in groups:
        idle.cut(1, 2)
        idle.tick(2 * ELECTION_TICKS * (ASKED_PATIENT + 2 ** (ASKED_SLOWER_MAX + 1)))
        assert idle.silent() == {1, 3}
    slowest = ELECTION_TICKS << (ASKED_SLOWER_MAX + 1)
    for idle in groups:  # one question in 16 to 32 election timeouts, which nobody answers
        assert idle.messages_in(4 * slowest) <= 8


@pytest.mark.parametrize("seed", range(20))
def test_member_cut_from_its_leader_elects_at_once_when_that_is_gone(host, seed):
    idle = Idle(host, seed)
    idle.cut(1, 2)
    idle.tick(100 * ELECTION_TICKS)
    idle.crash(1)
    idle.tick(4 * ELECTION_TICKS)
    assert len(idle.leaders()) == 1


@pytest.mark.parametrize("dead", [1, 2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_idle_group_with_a_dead_member_says_nothing(host, seed, dead):
    idle = Idle(host, seed)
    idle.crash(dead)
    idle.tick(SETTLE_TICKS)
    assert len(idle.leaders()) == 1
    assert idle.silent() == {1, 2, 3} - {dead}
    assert idle.messages_in(1000) == 0


def test_member_that_dies_while_its_group_is_silent_costs_no_message(host):
    idle = Idle(host, 1)
    before = idle.sent
    idle.crash(3)
    assert idle.sent == before
    assert idle.messages_in(1000) == 0


@pytest.mark.parametrize("dead", [1, 3])
def test_member_that_comes_back_is_brought_up_to_date(host, dead):
    idle = Idle(host, 1)
    disk = idle.crash(dead)
    idle.tick(SETTLE_TICKS)
    (leader,) = idle.leaders()
    idle.members[leader].core.propose([b"meanwhile"])
    idle.tick(SETTLE_TICKS)
    assert idle.silent() == {1, 2, 3} - {dead}
    idle.start(dead, disk)
    for other in {1, 2, 3} - {dead}:
        idle.heal(other, dead)
    idle.tick(SETTLE_TICKS)
    assert idle.silent() == {1, 2, 3}
    assert [entry.data for entry in idle.members[dead].applied][-1] == b"meanwhile"


def test_leader_whose_majority_goes_wakes_and_steps_down(host):
    idle = Idle(host, 1)
    idle.cut(1, 2)
    assert 1 in idle.silent()
    idle.cut(1, 3)
    assert 1 not in idle.silent()
    idle.tick(2 * ELECTION_TICKS)
    assert idle.members[1].core.role in (FOLLOWER, PRE_CANDIDATE)


@pytest.mark.parametrize("seed", range(20))
def test_link_that_heals_wakes_no_group(host, seed):
    idle = Idle(host, seed)
    idle.cut(1, 2)
    idle.tick(100 * ELECTION_TICKS)
    before = idle.sent
    idle.heal(1, 2)
    idle.tick(SETTLE_TICKS)
    assert idle.silent() == {1, 2, 3}
    assert {member.core.leader for member in idle.members.values()} == {1}
    assert idle.sent - before <= 1


def test_member_that_restarts_wakes_no_group(host):
    idle = Idle(host, 1)
    disk = idle.crash(3)
    before = idle.sent
    idle.start(3, disk)
    for other in (1, 2):
        idle.heal(other, 3)
    idle.tick(SETTLE_TICKS)
    assert idle.silent() == {1, 2, 3}
    assert idle.sent - before <= 1


def silent_leader(host):
    member = host(election_ticks=ELECTION_TICKS, quiesce_ticks=QUIESCE_TICKS)
    member.core.watch_nodes({2, 3})
    member.elect()
    member.acknowledge(2, 1)
    member.acknowledge(3, 1)
    while not member.core.quiesced:
        member.core.tick()
        member.drain()
        member.hear(2)
        member.hear(3)
    return member


def test_silent_leader_answers_a_question_to_its_sender_alone(host):
    member = silent_leader(host)
    for _ in range(GREETINGS_MAX):
        (answer,) = member.step(PRE_VOTE, 3, member.core.term + 1)
        assert (answer.kind, answer.target, answer.quiesce) == (HEARTBEAT, 3, True)
        assert member.core.quiesced
    answers = member.step(PRE_VOTE, 3, member.core.term + 1)
    assert {m.target for m in answers if m.kind == HEARTBEAT} == {2, 3}
    assert not member.core.quiesced


def test_silent_leader_wakes_for_a_question_while_its_majority_is_in_doubt(host):
    member = silent_leader(host)
    member.core.watch_nodes(set())
    member.step(PRE_VOTE, 3, member.core.term + 1)
    assert not member.core.quiesced


def test_silent_leader_wakes_for_a_member_that_lacks_something(host):
    idle = Idle(host, 1)
    disk = idle.crash(3)
    idle.members[1].core.propose([b"meanwhile"])
    idle.tick(SETTLE_TICKS)
    assert 1 in idle.silent()
    idle.start(3, disk)
    idle.heal(1, 3)
    assert 1 not in idle.silent()


def silent_follower(host, nodes_up=(2, 3)):
    member = host(election_ticks=ELECTION_TICKS)
    member.core.watch_nodes(set(nodes_up))
    member.step(HEARTBEAT, 2, 1, quiesce=True)
    assert member.core.quiesced
    return member


@pytest.mark.parametrize("kind", [PRE_VOTE, VOTE])
def test_silent_follower_passes_questions_over_while_its_leaders_node_is_up(host, kind):
    member = silent_follower(host)
    assert member.step(kind, 3, 2) == []
    assert member.core.quiesced
    assert member.core.leader == 2


def test_silent_follower_asks_its_leader_for_a_sign_of_life_in_the_end(host):
    member = silent_follower(host)
    for _ in range(DOUBTS_MAX):
        assert member.step(PRE_VOTE, 3, 2) == []
    (question,) = member.step(PRE_VOTE, 3, 2)
    assert (question.kind, question.target, question.reject) == (HEARTBEAT_REPLY, 2, True)
    assert not member.core.quiesced


def test_silent_follower_hears_its_own_leader_ask_and_who_was_told_to(host):
    member = silent_follower(host)
    member.step(PRE_VOTE, 2, 2)
    assert not member.core.quiesced
    member = silent_follower(host)
    *_, reply = member.step(VOTE, 3, 2, context=FORCED)
    assert (reply.kind, reply.target, reply.reject) == (VOTE_REPLY, 3, False)


def test_sign_of_life_that_is_asked_for_wakes_a_silent_leader(host):
    member = host(election_ticks=ELECTION_TICKS, quiesce_ticks=QUIESCE_TICKS)
    member.elect()
    member.acknowledge(2, 1)
    member.acknowledge(3, 1)
    while not member.core.quiesced:
        member.core.tick()
        member.drain()
        member.hear(2)
        member.hear(3)
    answers = member.step(HEARTBEAT_REPLY, 3, 1, reject=True)
    assert {m.target for m in answers if m.kind == HEARTBEAT} == {2, 3}


@pytest.mark.parametrize("kind", [VOTE, APPEND, HEARTBEAT])
def test_silent_leader_that_was_deposed_learns_of_it_from_its_follower(host, kind):
    member = silent_follower(host, nodes_up=(3,))
    member.core.tick()
    former = []
    for _ in range(ELECTION_TICKS + 1):
        former += [m for m in member.step(kind, 3, 2) if m.target == 2 and m.term == 2]
        if former:
            break
        member.core.tick()
    assert [m.kind for m in former] == [HEARTBEAT_REPLY]
    leader = host(election_ticks=ELECTION_TICKS, member=2)
    leader.elect(1, 3)
    leader.step(HEARTBEAT_REPLY, 1, leader.core.term + 1)
    assert (leader.core.role, leader.core.leader) == (FOLLOWER, 0)


@pytest.mark.parametrize(
    "late",
    [
        (APPEND, {"index": 0, "log_term": 0}),
        (HEARTBEAT, {}),
        (HEARTBEAT_REPLY, {}),
        (APPEND_REPLY, {}),
        (VOTE_REPLY, {}),
    ],
)
def test_late_message_of_an_older_term_does_not_wake_a_silent_follower(host, late):
    kind, fields = late
    member = host(election_ticks=ELECTION_TICKS)
    member.core.watch_nodes({2, 3})
    member.step(HEARTBEAT, 2, 2, quiesce=True)
    answers = member.step(kind, 3, 1, **fields)
    assert member.core.quiesced
    expected = [(HEARTBEAT_REPLY, 3, 2)] if kind in (APPEND, HEARTBEAT) else []
    assert [(m.kind, m.target, m.term) for m in answers] == expected


def test_late_answers_to_one_that_led_do_not_wake_it(host):
    member = silent_follower(host)
    assert member.step(HEARTBEAT_REPLY, 3, 1) == []
    assert member.step(PRE_VOTE_REPLY, 3, 2) == []
    assert member.core.quiesced


def test_follower_that_is_woken_by_a_late_question_asks_its_leader_to_speak(host):
    member = silent_follower(host)
    question, _ = member.step(VOTE, 3, 1)
    assert (question.kind, question.target, question.reject) == (HEARTBEAT_REPLY, 2, True)


def test_entry_after_a_greeting_is_sent_at_once(host):
    member = silent_leader(host)
    member.core.report_unreachable(3)
    member.core.peer_up(3)
    (greeting,) = member.drain()
    assert (greeting.target, greeting.quiesce) == (3, True)
    member.core.propose([b"new"])
    sent = [m.target for m in member.drain() if m.kind == APPEND]
    assert sorted(sent) == [2, 3]


def test_leader_stays_awake_until_a_learner_that_came_up_has_answered(host):
    """Its promotion waits for that answer, which a silent learner does not give."""
    member = host(
        voters=(1, 2), learners=(3,), election_ticks=ELECTION_TICKS, quiesce_ticks=QUIESCE_TICKS
    )
    member.core.watch_nodes({2, 3})
    member.elect()
    member.acknowledge(2, 1)
    member.acknowledge(3, 1)
    member.core.peer_up(3)
    for _ in range(2 * QUIESCE_TICKS):
        member.tick()
        member.hear(2)
    assert not member.core.quiesced
    member.hear(3)
    member.tick()
    assert member.core.quiesced


def test_call_for_silence_that_was_overtaken_silences_nobody(host):
    member = host(election_ticks=ELECTION_TICKS)
    member.step(HEARTBEAT, 2, 1, index=1)
    (answer,) = member.step(HEARTBEAT, 2, 1, quiesce=True)
    assert (answer.kind, answer.target) == (HEARTBEAT_REPLY, 2)
    assert not member.core.quiesced
    member.step(HEARTBEAT, 2, 2, quiesce=True)
    assert member.core.quiesced
