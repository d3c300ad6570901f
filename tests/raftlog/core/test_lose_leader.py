"""A host that knows the leader's node to be down need not wait for the election timeout."""

from __future__ import annotations

from itertools import count

import pytest

from headrace_raftlog.model.group import FOLLOWER, LEADER, PRE_CANDIDATE
from headrace_raftlog.model.message import HEARTBEAT, PRE_VOTE, PRE_VOTE_REPLY, VOTE, Message


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
            number: host(member=number, group=group, seed=1000 * number + group, election_ticks=10)
            for number in (2, 3)
        }
        for number, member in members.items():
            member.core.watch_nodes({5 - number})
            member.step(HEARTBEAT, 1, 1, quiesce=True)
            member.core.lose_leader()
        for tick in range(10):
            for member in members.values():
                asked_in[tick] += deliver(members, member.tick())
        assert sorted(member.core.role for member in members.values()) == [FOLLOWER, LEADER]
    assert sum(asked_in) <= 2 * 1000, "both other members are asked, once"
    assert max(asked_in) <= 2 * 400


def two_without_leader(host, group, **options):
    """Members 2 and 3, which both know that 1, which led, is down."""
    members = {
        number: host(group=group, member=number, seed=1000 * number + group, **options)
        for number in (2, 3)
    }
    for number, member in members.items():
        member.core.watch_nodes({5 - number})
    return members


@pytest.mark.parametrize("delay", [0, 3, 4])
def test_members_that_know_of_each_other_elect_in_one_election(host, delay):
    """Also where an answer takes so many ticks as on a busy node."""
    firsts = set()
    for group in range(1, 101):
        members = two_without_leader(host, group, election_ticks=10)
        for member in members.values():
            member.step(HEARTBEAT, 1, 1, quiesce=True)
            member.core.lose_leader()
        under_way: list[tuple[int, Message]] = []
        for tick in count():
            for member in members.values():
                under_way += [(tick + delay, message) for message in member.tick()]
            while under_way and under_way[0][0] <= tick:
                message = under_way.pop(0)[1]
                if message.target in members:
                    members[message.target].core.step(message)
                    answers = members[message.target].drain()
                    under_way += [(tick + delay, answer) for answer in answers]
            leaders = [number for number, each in members.items() if each.core.role == LEADER]
            if leaders:
                break
        firsts.add(leaders[0])
        assert members[leaders[0]].core.term == 2
        assert tick <= 5 + 4 * delay
    assert firsts == {2, 3}


def test_member_that_refuses_a_shorter_log_asks_next(host):
    for group in (1, 2):
        members = two_without_leader(host, group, terms=(1,), election_ticks=10)
        for member in members.values():
            member.step(HEARTBEAT, 1, 1)
            member.core.lose_leader()
        second = max(members.values(), key=lambda member: member.core.election_timeout)
        assert second.core.election_timeout > 10
        first = 5 - second.member
        [reply] = second.step(PRE_VOTE, first, 2)
        assert reply.reject
        for _ in range(5):
            second.core.tick()
        assert second.core.role == PRE_CANDIDATE


def test_silent_groups_of_a_lost_node_begin_over_the_time_that_they_are_given(host):
    """Members whose nodes know of somewhat different numbers of groups keep their turns."""
    begins = [0] * 21
    for group in range(1000):
        timeouts = []
        for number, member in two_without_leader(host, group, election_ticks=10).items():
            member.step(HEARTBEAT, 1, 1, quiesce=True)
            member.core.lose_leader(16 + number)
            timeouts.append(member.core.election_timeout)
        begins[min(timeouts)] += 1
        assert 9 <= max(timeouts) - min(timeouts) <= 11
    assert begins[0] == 0 < min(begins[1:19])
    assert max(begins) < 100


def test_elections_begin_within_two_timeouts_however_many_groups_are_lost(host):
    for group in range(100):
        members = two_without_leader(host, group, election_ticks=10)
        for member in members.values():
            member.step(HEARTBEAT, 1, 1, quiesce=True)
            member.core.lose_leader(1000)
        assert min(member.core.election_timeout for member in members.values()) <= 20


@pytest.mark.parametrize("parity", [0, 1])
@pytest.mark.parametrize("quiet", [False, True])
def test_survivors_share_the_groups_of_a_lost_node_whatever_their_ids(host, parity, quiet):
    first = {2: 0, 3: 0}
    for group in range(parity, 1000, 2):
        members = two_without_leader(host, group, election_ticks=10)
        for member in members.values():
            member.step(HEARTBEAT, 1, 1, quiesce=quiet)
            member.core.lose_leader(5)
        first[min(members, key=lambda number: members[number].core.election_timeout)] += 1
    assert min(first.values()) > 200


@pytest.mark.parametrize("quiet", [False, True])
def test_member_that_learns_of_the_loss_late_asks_soon_where_another_asked_in_vain(host, quiet):
    for group in range(50):
        members = two_without_leader(host, group, election_ticks=10)
        for number, member in members.items():
            member.core.watch_nodes({1, 5 - number})
            member.step(HEARTBEAT, 1, 1, quiesce=quiet)
        for number, member in members.items():
            member.core.watch_nodes({5 - number})
            if number == 2:
                assert members[3].step(PRE_VOTE, 2, 2) == []
            member.core.lose_leader(20)
        assert members[3].core.election_timeout <= 5


@pytest.mark.parametrize(("others", "needed"), [({1, 3}, True), ({1, 3, 4}, False)])
def test_refusal_that_decides_nothing_disturbs_no_election(host, others, needed):
    """Of five voters the leader's node is lost, or that of another one too."""
    for group in range(20):
        options = {"voters": (1, 2, 3, 4, 5), "member": 2, "terms": (1,), "election_ticks": 10}
        member = host(group=group, **options)
        member.core.watch_nodes(others)
        member.step(HEARTBEAT, 5, 1)
        member.core.lose_leader()
        before = member.core.election_timeout
        [reply] = member.step(PRE_VOTE, 1, 2)
        assert reply.reject
        if needed:
            assert member.core.election_timeout <= 5
        else:
            assert member.core.election_timeout == before


def test_group_that_has_traffic_waits_for_no_others(host):
    for group in range(100):
        members = two_without_leader(host, group, election_ticks=10)
        for member in members.values():
            member.step(HEARTBEAT, 1, 1)
            member.core.lose_leader(40)
        assert min(member.core.election_timeout for member in members.values()) <= 5
