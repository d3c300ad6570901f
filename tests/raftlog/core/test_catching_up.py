"""Promotion of learners that are always a little behind. Thesis, section 4.2.1."""

from __future__ import annotations


def leading(host, learners=(4, 5), **options):
    """Lead term 1 of 1, 2, 3 with learners; everyone holds the no-op."""
    member = host(learners=learners, quiesce_ticks=0, **options)
    member.elect()
    for peer in (2, 3, *learners):
        member.acknowledge(peer, 1)
    return member


def under_load(member, lots, ticks, lots_behind=1):
    """Give the voters lots of ten entries as they come, and learner 4 those of before."""
    for _ in range(lots):
        member.core.propose([b"a"] * 10)
        member.drain()
        last = member.core.last_index
        member.acknowledge(2, last)
        member.acknowledge(4, max(last - 10 * lots_behind, 1))
        for _ in range(ticks):
            member.core.tick()
            member.drain()
            member.hear(2)
            member.hear(3)
        assert member.core.commit_index - member.core.progress(4).match > 2


def test_learner_that_keeps_pace_under_load_is_caught_up(host):
    """Section 4.2.1: a round of replication took less than an election timeout."""
    member = leading(host, promote_lag_max=2)
    under_load(member, lots=6, ticks=2)
    assert member.core.is_caught_up(4)
    assert not member.core.is_caught_up(5)
    assert member.core.propose_membership((1, 2, 3, 4), (5,)) > 0


def test_learner_whose_rounds_take_an_election_timeout_is_not_caught_up(host):
    """Section 4.2.1: it would hold up commitment for so long."""
    member = leading(host, promote_lag_max=2)
    under_load(member, lots=30, ticks=2, lots_behind=8)
    assert not member.core.is_caught_up(4)
    under_load(member, lots=10, ticks=2)
    assert member.core.is_caught_up(4)


def test_learner_that_kept_pace_once_and_stands_still_is_not_caught_up(host):
    """Section 4.2.1: the round that is under way counts as well, once it takes too long."""
    member = leading(host, promote_lag_max=2)
    under_load(member, lots=6, ticks=2)
    member.core.propose([b"a"] * 10)
    member.drain()
    member.acknowledge(2, member.core.last_index)
    for _ in range(member.core.options.election_ticks):
        member.core.tick()
        member.drain()
        member.hear(2)
        member.hear(3)
    assert not member.core.is_caught_up(4)


def test_burst_behind_an_idle_time_has_to_be_replicated_once(host):
    """Section 4.2.1: a round in which there was nothing to replicate says nothing."""
    member = leading(host, promote_lag_max=2)
    member.core.propose([b"a"] * 100)
    member.drain()
    member.acknowledge(2, 101)
    member.acknowledge(4, 50)
    assert not member.core.is_caught_up(4)
    member.acknowledge(4, 98)
    assert not member.core.is_caught_up(4)
    member.acknowledge(4, 99)
    assert member.core.is_caught_up(4)


def test_learner_that_needs_the_snapshot_begins_its_rounds_anew(host):
    """Section 4.2.1: the first round behind a snapshot has all that came meanwhile."""
    member = leading(host, promote_lag_max=2)
    under_load(member, lots=6, ticks=2)
    progress = member.core.progress(4)
    progress.become_offered(progress.match)
    assert not progress.keeps_pace
    assert progress.round_end == 0
