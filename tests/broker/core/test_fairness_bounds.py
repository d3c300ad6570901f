"""Messages that take turns: bounds, snapshots, and a burst beside a trickle."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.core.conftest import (
    ANNA,
    BERT,
    NOBODY,
    A,
    B,
    C,
    QueueLog,
    messages,
    of,
    runs,
    taken,
)

from headrace_broker.core.queue.command import command
from headrace_broker.core.queue.command.command import ACCEPT, RELEASE, encode_attach
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import Effect
from headrace_broker.core.queue.state.fair_lanes import KEY_VALUE, fair_key
from headrace_broker.core.queue.state.page import PAGE_BATCHES
from headrace_broker.model.limits import (
    FAIRNESS_SHARED_LANES,
    FAIRNESS_VALUE_BYTES_MAX,
    FAIRNESS_VALUES_MAX,
)

# Bounds


def test_values_beyond_the_bound_share_lanes_and_keep_their_order(fair: QueueLog) -> None:
    count = 3 * (FAIRNESS_VALUES_MAX // 100) * 100
    for first in range(0, count, 100):
        fair.publish(*[of(tenant) for tenant in range(first, first + 100)])
    fair.publish(*[of(tenant) for tenant in range(count - 100, count)])
    values = fair.machine.fairness(10**6)
    assert sum(v.shared for v in values) <= FAIRNESS_SHARED_LANES
    assert sum(not v.shared for v in values) == FAIRNESS_VALUES_MAX
    assert sum(v.waiting for v in values) == count + 100 == fair.machine.ready_count
    got = messages(fair.attach(ANNA, 1, 1, 10**6))
    assert [m.message_id for m in got[:FAIRNESS_VALUES_MAX]] == [*range(1, FAIRNESS_VALUES_MAX + 1)]
    assert sorted(m.message_id for m in got) == list(range(1, count + 101))
    at = {m.message_id: place for place, m in enumerate(got)}
    assert all(at[first + 1] < at[first + 101] for first in range(count - 100, count))


def test_a_value_that_shares_a_lane_does_so_until_the_lane_is_empty(fair: QueueLog) -> None:
    fair.publish(*[of(tenant) for tenant in range(FAIRNESS_VALUES_MAX)])
    fair.publish(of(5000), of(5000))
    taken(fair, 100)
    last = fair.publish(of(5000))
    assert last != []
    assert [v.waiting for v in fair.machine.fairness(10**6) if v.shared] == [3]
    left = [m.message_id for m in messages(fair.attach(ANNA, 1, 1, 10**6))]
    ours = [each for each in left if each > FAIRNESS_VALUES_MAX]
    assert ours == sorted(ours)
    fair.publish(of(5000), of(5000))
    assert [v.shared for v in fair.machine.fairness(9)] == []  # Anna has them already


def test_what_comes_back_does_not_exceed_the_bound(fair: QueueLog) -> None:
    fair.publish(*[of(tenant) for tenant in range(FAIRNESS_VALUES_MAX)])
    fair.attach(ANNA, 1, 1, FAIRNESS_VALUES_MAX)
    fair.apply(command.encode_cancel(ANNA, 2, 1))
    fair.publish(*[of(10_000 + tenant) for tenant in range(FAIRNESS_VALUES_MAX)])
    fair.settle(ANNA, 3, RELEASE, (1, 1, FAIRNESS_VALUES_MAX))
    values = fair.machine.fairness(10**6)
    assert sum(not v.shared for v in values) == FAIRNESS_VALUES_MAX
    assert sum(v.waiting for v in values if v.shared) == FAIRNESS_VALUES_MAX
    restored = QueueMachine.restore(fair.machine.snapshot())
    assert restored.digest() == fair.machine.digest()
    assert len(messages(fair.attach(BERT, 1, 1, 10**6))) == 2 * FAIRNESS_VALUES_MAX


def test_a_long_value_is_told_apart_by_a_digest_and_takes_little_room() -> None:
    long = [b"S" + b"x" * 1000 + bytes([last]) for last in range(2)]
    keys = {fair_key(each) for each in long}
    assert len(keys) == 2
    assert {len(key) for key in keys} == {1 + FAIRNESS_VALUE_BYTES_MAX}
    short = b"S" + b"x" * (FAIRNESS_VALUE_BYTES_MAX - 1)
    assert fair_key(short) == KEY_VALUE + short


def test_what_comes_and_goes_leaves_nothing_behind(fair: QueueLog) -> None:
    fair.configure(max_length=50)
    fair.apply(encode_attach(ANNA, 1, 1, 9, False, b"", filtered=True))
    for turn in range(1000):
        fair.publish(of(turn, expiration=1), of(A), of(turn + 5000))
        fair.now_ms += 2
    lanes = fair.machine._state.ready.fair
    assert len(lanes._expiring) < 400
    assert len(lanes._spare) <= 16
    ring = lanes._rings[0]
    assert ring is not None
    assert ring._most_messages is not None
    assert len(ring._most_messages._heap) < 400


def test_batches_of_one_value_stay_batches_in_pages(fair: QueueLog) -> None:
    for _ in range(3 * PAGE_BATCHES):
        fair.publish(*[of(A)] * 5)
        fair.publish(*[of(B)] * 5)
    packed = [
        page.packed
        for lane in fair.machine._state.ready.fair.of_values()
        for page in lane.pages
        if page.packed
    ]
    assert len(packed) == 2
    assert all(len(each) < 10 * PAGE_BATCHES for each in packed)


def test_mixed_batches_of_unequal_sizes_do_not_grow_by_the_square(fair: QueueLog) -> None:
    choice = random.Random(1)
    count = 40
    for _ in range(3 * PAGE_BATCHES):
        fair.publish(*[of(n % 7, bytes(choice.randint(0, 500))) for n in range(count)])
    snapshot = fair.machine.snapshot()
    assert len(snapshot) < 3 * PAGE_BATCHES * count * 14


# Snapshots


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_a_snapshot_keeps_whose_turn_it_is(seed: int) -> None:
    choice = random.Random(seed)
    fair = QueueLog()
    fair.configure(fairness_key=b"tenant", priority_max=1)
    for _ in range(30):
        fair.publish(*[of(choice.randint(1, 6), priority=choice.randint(0, 1)) for _ in range(4)])
        fair.publish(NOBODY)
    taken(fair, choice.randint(1, 60))
    restored = QueueMachine.restore(fair.machine.snapshot())
    assert restored.digest() == fair.machine.digest()
    attach = command.stamp_command(fair.now_ms, encode_attach(ANNA, 1, 1, 999, False, b""))
    index = len(fair.entries) + 1
    found = restored.apply(index, attach)
    assert runs(found) == runs(fair.apply(attach[8:]))
    assert len(messages(found)) > 80


def test_replicas_drop_the_same_whether_or_not_one_was_restored(fair: QueueLog) -> None:
    fair.configure(max_length=3)
    fair.publish(of(A), of(A), of(A), of(B))  # one is dropped: sizes are known from now on
    fair.attach(ANNA, 1, 1, 100)
    fair.apply(command.encode_cancel(ANNA, 2, 1))
    fair.settle(ANNA, 3, ACCEPT, (1, 1, 3))
    fair.publish(NOBODY, NOBODY, NOBODY)
    restored = QueueMachine.restore(fair.machine.snapshot())
    fair.publish(of(A))
    restored.apply(len(fair.entries), fair.entries[-1])
    assert fair.ids() == [6, 7, 8]
    assert restored.digest() == fair.machine.digest()


# A burst and a trickle

BURST = 10_000


@pytest.mark.parametrize("batch", [1, 100, BURST])
def test_a_trickle_beside_a_burst_waits_for_one_message(fair: QueueLog, batch: int) -> None:
    for _ in range(BURST // batch):
        fair.publish(*[of(A)] * batch)
    fair.attach(BERT, 1, 1, 1)
    for turn in range(2, 60, 2):
        fair.publish(of(B))
        ours = int(fair.machine.last_id)
        first, second = (
            [m.message_id for m in messages(fair.settle(BERT, n, ACCEPT, (1, 1, n)))]
            for n in (turn, turn + 1)
        )
        assert ours in first + second


@settings(max_examples=20, deadline=None)
@given(others=st.integers(0, 5), prefetch=st.sampled_from([1, 3, 40]), seed=st.integers(0, 2**32))
def test_a_message_waits_one_round_for_each_of_its_value_before_it(
    others: int, prefetch: int, seed: int
) -> None:
    choice = random.Random(seed)
    fair = QueueLog()
    fair.configure(fairness_key=b"tenant")
    fair.publish(*[of(A)] * 2500)
    for tenant in range(others):
        fair.publish(*[of(C + tenant)] * 400)
    given_out = len(messages(fair.attach(BERT, 1, 1, prefetch)))
    latest: dict[int, int] = {}  # a message of B -> which delivery it is at the latest
    for turn in range(2, 60):
        effects: list[Effect] = []
        if choice.random() < 0.6:
            effects = fair.publish(of(B))
            latest[int(fair.machine.last_id)] = given_out + (len(latest) + 1) * (2 + others)
        some = choice.randint(1, prefetch)
        effects += fair.settle(BERT, turn, ACCEPT, (1, 1, given_out - prefetch + some))
        for message in messages(effects):
            given_out += 1
            assert given_out <= latest.pop(message.message_id, 10**9)
    assert given_out >= 58
