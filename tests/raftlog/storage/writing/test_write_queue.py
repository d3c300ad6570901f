"""Jobs that may pass a long one, and what becomes of what dies with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_raftlog.storage.writing.write_job import JOB_MOVE, WriteJob
from headrace_raftlog.storage.writing.write_queue import WriteQueue

ROOM = 1 << 20
WHOLE = 100


def job(name: str, groups: list[int], size: int, dying: dict[int, int] | None = None) -> WriteJob:
    made = WriteJob(None, name, JOB_MOVE)
    made.groups.extend(groups)
    if size:
        made.add(bytes(size))
    made.dying = dying
    return made


@pytest.fixture
def queue() -> WriteQueue:
    made = WriteQueue(WHOLE)
    made.slicing = True
    return made


def fill(queue: WriteQueue, *jobs: WriteJob) -> None:
    for each in jobs:
        queue.push(each)


def names(jobs: list[WriteJob]) -> list[object]:
    return [each.token for each in jobs]


def test_without_a_long_job_all_are_taken_in_order_while_there_is_room(queue: WriteQueue) -> None:
    fill(queue, *(job(name, [1], 34) for name in "abcde"))
    assert names(queue.take(150, ROOM)) == ["a", "b", "c"]
    assert names(queue.take(ROOM, 50)) == ["d"]
    assert names(queue.take(ROOM, 10)) == ["e"], "one is taken, however long"
    assert queue.take(ROOM, ROOM) == []


def test_jobs_of_other_groups_pass_a_long_one(queue: WriteQueue) -> None:
    long = job("long", [1], 200)
    fill(queue, long, job("own", [1], 10), job("other", [2], 10), job("note", [], 0))
    assert queue.begin(ROOM) is long
    assert names(queue.take(ROOM, ROOM)) == ["other", "note"]
    assert queue.take(ROOM, ROOM) == []
    queue.under_way = None
    assert names(queue.take(ROOM, ROOM)) == ["own"]


def test_job_of_several_groups_holds_all_of_them_back(queue: WriteQueue) -> None:
    fill(queue, job("long", [1], 200), job("both", [1, 2], 10), job("two", [2], 10))
    fill(queue, job("three", [3], 10))
    queue.begin(ROOM)
    assert names(queue.take(ROOM, ROOM)) == ["three"]
    queue.under_way = None
    assert names(queue.take(ROOM, ROOM)) == ["both", "two"]


def test_second_long_job_waits_for_the_first(queue: WriteQueue) -> None:
    first, second = job("first", [1], 200), job("second", [2], 300)
    fill(queue, first, second, job("behind", [2], 10), job("other", [3], 10))
    assert queue.begin(ROOM) is first
    assert queue.begin(ROOM) is None
    assert names(queue.take(ROOM, ROOM)) == ["other"]
    queue.under_way = None
    assert queue.begin(100) is None, "no room"
    assert queue.begin(ROOM) is second


def test_long_job_is_an_ordinary_one_where_nothing_is_sliced(queue: WriteQueue) -> None:
    queue.slicing = False
    fill(queue, job("long", [1], 200), job("own", [1], 10), job("other", [2], 10))
    assert queue.begin(ROOM) is None
    assert queue.need(queue.first() or job("", [], 0)) == 216
    assert names(queue.take(ROOM, ROOM)) == ["long", "own", "other"]
    queue.slicing = True
    assert not queue.has_sliced()


def test_what_dies_with_a_job_that_passes_dies_with_the_last_one_before_it(
    queue: WriteQueue,
) -> None:
    long, own = job("long", [1], 200, {7: 1}), job("own", [1], 10)
    fill(queue, job("before", [3], 10, {9: 4}), long, own)
    fill(queue, job("other", [2], 10, {7: 2, 8: 5}), job("more", [3], 10, {8: 1}))
    assert [each.dying for each in queue.take(ROOM, ROOM)] == [{9: 4}, None, None]
    assert own.dying == {7: 2, 8: 6}
    assert long.dying == {7: 1}
    queue.begin(ROOM)
    fill(queue, job("late", [4], 10, {6: 1}))
    queue.take(ROOM, ROOM)
    assert own.dying == {7: 2, 8: 6, 6: 1}


@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 3), max_size=2), st.sampled_from([0, 20, 150])),
        max_size=12,
    ),
    st.lists(st.integers(30, 400), min_size=1, max_size=6),
)
def test_order_of_each_group_and_of_what_dies_is_kept(
    given_jobs: list[tuple[list[int], int]], rooms: list[int]
) -> None:
    queue = WriteQueue(WHOLE)
    queue.slicing = True
    jobs = [job(str(n), groups, size, {n: 1}) for n, (groups, size) in enumerate(given_jobs)]
    fill(queue, *jobs)
    done: list[WriteJob] = []
    dead: list[int] = []
    turn = 0
    while len(done) < len(jobs):
        batch: list[WriteJob] = []
        if queue.under_way is not None and turn % 3 == 2:
            batch.append(queue.under_way)
            queue.under_way = None
        queue.begin(ROOM)
        batch += queue.take(max(rooms[turn % len(rooms)], 60), ROOM)
        turn += 1
        for each in batch:
            done.append(each)
            dead.extend(sorted(each.dying or {}))
            for number in dead:  # all that was handed over before what died with it is durable
                assert all(one in done for one in jobs[:number])
    for group in (1, 2, 3):
        own = [each.token for each in done if group in each.groups]
        assert own == [each.token for each in jobs if group in each.groups]
    assert sorted(dead) == list(range(len(jobs)))
