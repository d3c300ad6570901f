"""A leader's knowledge of a follower, and its sending rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_raftlog.core.progress import PROBE, REPLICATE, SNAPSHOT_OFFERED, Progress


def replicating(match=0, inflight_max=3, inflight_bytes_max=100):
    progress = Progress(2, match + 1, inflight_max, inflight_bytes_max)
    progress.acknowledged(match)
    return progress


def test_follower_is_probed_until_it_acknowledges():
    progress = Progress(2, 6, 3, 100)
    assert progress.state == PROBE
    progress.sent(8, 30)
    assert (progress.next_index, progress.probe_sent, progress.inflight) == (6, True, [])
    assert progress.acknowledged(8)
    assert (progress.state, progress.match, progress.next_index) == (REPLICATE, 8, 9)


@pytest.mark.parametrize(
    ("refused", "agree", "following"), [(5, 3, 4), (5, 5, 5), (5, 0, 1), (4, 2, 6), (7, 2, 6)]
)
def test_refused_probe_goes_back_to_where_the_logs_may_agree(refused, agree, following):
    """Section 3.5; an answer to any other probe than the last is stale."""
    progress = Progress(2, 6, 3, 100)
    progress.probe_sent = True
    assert progress.rejected(refused, agree) is (refused == 5)
    assert (progress.next_index, progress.probe_sent) == (following, refused != 5)


def test_refusal_never_takes_back_what_matched():
    """Hazard 16: nextIndex is always above matchIndex."""
    progress = replicating(match=5)
    progress.become_probe()
    assert progress.rejected(5, 1)
    assert (progress.match, progress.next_index) == (5, 6)


def test_refusal_of_what_matched_meanwhile_is_stale():
    """Hazard 13: it was overtaken by an acknowledgement."""
    progress = replicating(match=5)
    assert not progress.rejected(5, 1)
    assert progress.state == REPLICATE
    assert progress.rejected(6, 1)
    assert (progress.state, progress.next_index) == (PROBE, 6)


def test_pipelining_is_bounded_by_messages_and_bytes():
    progress = replicating()
    for index in (1, 2, 3):
        assert not progress.is_full()
        progress.sent(index, 10)
    assert progress.is_full()
    progress.acknowledged(2)
    assert not progress.is_full()
    progress.sent(4, 90)
    assert (progress.is_full(), progress.inflight_bytes) == (True, 100)
    progress.acknowledged(4)
    assert (progress.inflight, progress.inflight_bytes) == ([], 0)


def test_late_acknowledgement_frees_nothing_twice():
    """Hazard 16: the in-flight count must not leak, nor go below what is there."""
    progress = replicating()
    progress.sent(1, 10)
    progress.sent(2, 20)
    assert progress.acknowledged(2)
    assert not progress.acknowledged(1)
    assert (progress.match, progress.next_index, progress.inflight_bytes) == (2, 3, 0)


def test_offered_snapshot_stops_everything_until_something_is_acknowledged():
    """Chapter 5."""
    progress = replicating(match=3)
    progress.sent(4, 10)
    progress.become_offered(9)
    assert (progress.state, progress.next_index, progress.inflight) == (SNAPSHOT_OFFERED, 10, [])
    assert not progress.rejected(4, 0)
    assert not progress.acknowledged(2)
    assert progress.state == SNAPSHOT_OFFERED
    assert progress.acknowledged(9)
    assert (progress.state, progress.match, progress.next_index) == (REPLICATE, 9, 10)


def test_acknowledgement_short_of_the_offered_snapshot_starts_behind_what_matches():
    """Hazard 19: the follower took an older snapshot."""
    progress = replicating(match=3)
    progress.become_offered(9)
    assert progress.acknowledged(7)
    assert (progress.state, progress.next_index) == (REPLICATE, 8)


@pytest.mark.parametrize(
    ("state", "probe_sent", "out"),
    [
        (PROBE, False, False),
        (PROBE, True, True),
        (REPLICATE, False, False),
        (SNAPSHOT_OFFERED, True, False),
    ],
)
def test_only_a_probed_follower_that_was_not_heard_is_out_of_reach(state, probe_sent, out):
    progress = Progress(2, 1, 1, 1)
    progress.state = state
    progress.probe_sent = probe_sent
    assert progress.is_out_of_reach() is out


def test_commit_index_of_lost_messages_is_told_again():
    """Section 3.5: whoever is probed may not have got what told it the newest commit index."""
    progress = replicating(match=3)
    progress.commit_sent = 7
    progress.become_probe()
    assert progress.commit_sent == 3


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 3)),
            st.tuples(st.just("ack"), st.integers(0, 20)),
            st.tuples(st.just("reject"), st.integers(0, 20)),
            st.tuples(st.just("offer"), st.integers(0, 5)),
            st.tuples(st.just("probe"), st.just(0)),
        ),
        max_size=40,
    )
)
def test_next_index_is_above_match_and_accounts_agree(steps):
    """Hazard 16, whatever order answers come in."""
    progress = Progress(2, 1, 4, 1000)
    match = sent = 0
    for step, number in steps:
        if step == "send" and progress.state != SNAPSHOT_OFFERED and not progress.is_full():
            last = progress.next_index - 1 + number
            sent = max(sent, last)
            progress.sent(last, 10 * number)
        elif step == "ack" and number <= sent:
            progress.acknowledged(number)
            match = max(match, number)
        elif step == "reject":
            progress.rejected(number, number // 2)
        elif step == "offer":
            sent = max(sent, progress.match + number)
            progress.become_offered(progress.match + number)
        elif step == "probe":
            progress.become_probe()
        assert progress.match == match < progress.next_index
        assert len(progress.inflight) <= 4
        assert progress.inflight_bytes == sum(size for _, size in progress.inflight)
        indexes = [index for index, _ in progress.inflight]
        assert indexes == sorted(set(indexes))
        assert all(match < index < progress.next_index for index in indexes)
