"""Numbers and windows of one consumer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.codecs.batch import encode_batch
from headrace_broker.model.limits import DELIVERY_WINDOW_BYTES
from headrace_broker.model.message import DeliveryRun
from headrace_broker.runtime.contract.port import Attachment
from headrace_broker.runtime.session.subscription import Subscription

QUARTER = DELIVERY_WINDOW_BYTES // 4


@pytest.fixture
def subscription():
    """A consumer with number 5."""
    return Subscription(5, Attachment("c", 10))


@pytest.fixture(scope="session")
def make_run(publishes):
    """Make a run of `count` messages of one byte from delivery `first` on."""

    def make(first, count, number=5):
        bodies = [b"%c" % (64 + first + offset) for offset in range(count)]
        blob = encode_batch(publishes(*bodies))
        return DeliveryRun(number, first, blob, 0, list(range(count)), bytes(count))

    return make


def test_runs_in_order_pass_whole(subscription, make_run):
    fresh = subscription.accept(make_run(1, 3))
    assert (fresh.consumer, fresh.first, fresh.positions) == (5, 1, [0, 1, 2])
    assert subscription.expected == 4
    assert subscription.unsettled == 3


def test_known_part_of_a_run_is_cut_off(subscription, make_run):
    subscription.accept(make_run(1, 3))
    run = make_run(2, 4)
    run.redelivered = b"\x00\x00\x01\x00"
    fresh = subscription.accept(run)
    assert (fresh.first, fresh.positions, fresh.redelivered) == (4, [2, 3], b"\x01\x00")
    assert subscription.accept(make_run(1, 5)) is None
    assert subscription.unsettled == 5


def test_run_behind_a_hole_is_missed(subscription, make_run):
    assert subscription.misses(make_run(2, 1))
    assert not subscription.misses(make_run(1, 1))


def test_numbers_go_on_after_a_restart_and_old_settles_are_void(subscription, make_run):
    subscription.accept(make_run(1, 3))
    subscription.attached = True
    subscription.restart(77)
    assert (subscription.number, subscription.attached, subscription.expected) == (77, False, 1)
    fresh = subscription.accept(make_run(1, 2, 77))
    assert (fresh.consumer, fresh.first) == (5, 4)
    assert subscription.to_queue(1, 3) is None
    assert subscription.to_queue(2, 4) == (1, 1)
    assert subscription.to_queue(4, 5) == (1, 2)
    subscription.restart(78)
    assert subscription.to_queue(4, 5) is None
    assert subscription.accept(make_run(1, 1, 78)).first == 6


def test_bytes_are_granted_by_the_quarter_or_when_none_is_left(subscription):
    subscription._held_bytes = 3 * QUARTER
    assert subscription.consumed(QUARTER - 1) == 0
    assert subscription.consumed(1) == QUARTER
    assert subscription.consumed(10) == 0
    assert subscription.consumed(2 * QUARTER - 10) == 2 * QUARTER
    assert subscription._held_bytes == 0


def test_fresh_window_leaves_out_what_is_held_here(subscription):
    subscription._held_bytes = 100
    subscription.consumed(30)
    assert subscription.fresh_window() == DELIVERY_WINDOW_BYTES - 70
    assert subscription.consumed(70) == 70


@given(cuts=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 10)), max_size=30))
def test_repeated_and_overlapping_runs_give_each_delivery_once(make_run, cuts):
    subscription = Subscription(5, Attachment("c", 10))
    seen: list[int] = []
    for first, count in cuts:
        run = make_run(first, count)
        if subscription.misses(run):
            assert first > len(seen) + 1
            continue
        fresh = subscription.accept(run)
        if fresh is not None:
            seen += range(fresh.first, fresh.first + len(fresh.positions))
    assert seen == list(range(1, len(seen) + 1))
    assert subscription.expected == len(seen) + 1
