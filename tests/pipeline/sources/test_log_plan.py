"""Offsets, admission, partitions and losses of `headrace_log`: values in, values out."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_client.export import Shard
from headrace_pipeline.error import DataLossError, PipelineError
from headrace_pipeline.limits import CLOCK_AHEAD_MS, PARTITION_ROWS
from headrace_pipeline.sources.log.admission import Waiting, admit, divide_alike, divide_in_step
from headrace_pipeline.sources.log.loss import DROPPED, Loss, tell
from headrace_pipeline.sources.log.offset import Offset, Position, decode_offset, encode_offset
from headrace_pipeline.sources.log.partition import Range, cut, ranges_between
from headrace_pipeline.sources.log.progress import Bounds, advance
from headrace_pipeline.sources.log.survey import Survey, survey

LOG = "flow_samples"
ALL = Bounds(0, 0, None)
NAMES = st.sampled_from(["n1", "n2", "n3", "n4"])
NUMBER = st.integers(0, 1 << 62)
POSITIONS = st.builds(Position, NUMBER, NUMBER, st.none() | NUMBER, NUMBER)
WANTS = st.dictionaries(NAMES, st.integers(1, 1000), min_size=1)


# Offsets


@given(st.dictionaries(NAMES, POSITIONS), NUMBER)
def test_an_offset_comes_back_as_it_was(shards: dict[str, Position], since_ms: int) -> None:
    offset = Offset(LOG, shards, since_ms)
    text = json.dumps(encode_offset(offset))
    assert decode_offset(json.loads(text), LOG) == offset
    turned = Offset(LOG, dict(reversed(shards.items())), since_ms)
    assert json.dumps(encode_offset(turned)) == text


def test_an_offset_is_small_and_says_its_version() -> None:
    offset = Offset(LOG, {"n1": Position(7, 100), "n2": Position(8, 5, 0, 99)})
    assert encode_offset(offset) == {
        "version": 1,
        "log": LOG,
        "shards": {"n1": [7, 100], "n2": [8, 5, {"from": 0, "until": 99}]},
    }


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        ({"version": 2, "log": LOG, "shards": {}}, "offsets of version 2, this release knows 1"),
        ({}, "offsets of version None"),
        ({"version": 1, "log": "archive", "shards": {}}, "is of the log 'archive', not of"),
        ({"version": 1, "log": LOG, "shards": {"n1": []}}, "cannot be read"),
        ({"version": 1, "log": LOG}, "cannot be read"),
        ({"version": 1, "log": LOG, "shards": {"n1": ["x", 1]}}, "cannot be read"),
    ],
)
def test_an_offset_that_is_not_ours_is_refused(offset: dict[str, Any], text: str) -> None:
    with pytest.raises(PipelineError, match=text):
        decode_offset(offset, LOG)


# Admission


@given(WANTS, st.integers(1, 3000), st.integers(0, 9))
def test_what_is_divided_is_given_out_and_nobody_gets_more_than_wanted(
    wants: dict[str, int], budget: int, turn: int
) -> None:
    for divide in (divide_alike, divide_in_step):
        given_out = divide(wants, budget, turn)
        assert sum(given_out.values()) == min(budget, sum(wants.values()))
        assert all(0 <= given_out[name] <= want for name, want in wants.items())


@given(WANTS, st.integers(1, 3000), st.integers(0, 9))
def test_alike_means_that_who_gets_less_than_another_has_all_but_one(
    wants: dict[str, int], budget: int, turn: int
) -> None:
    found = divide_alike(wants, budget, turn)
    most = max(found.values())
    assert all(found[name] in (want, most, most - 1) for name, want in wants.items())


@given(WANTS, st.integers(1, 3000), st.integers(0, 9))
def test_in_step_means_the_same_part_of_what_each_has(
    wants: dict[str, int], budget: int, turn: int
) -> None:
    found = divide_in_step(wants, budget, turn)
    part = min(budget / sum(wants.values()), 1)
    assert all(abs(found[name] - want * part) < 1 for name, want in wants.items())


@given(
    st.dictionaries(NAMES, st.builds(Waiting, st.integers(1, 1000), st.integers(1, 99))),
    st.integers(0, 500),
    st.integers(0, 5000),
    st.booleans(),
    st.integers(0, 9),
)
def test_rows_are_admitted_within_both_bounds_and_one_always(
    waiting: dict[str, Waiting], rows_max: int, bytes_max: int, in_step: bool, turn: int
) -> None:
    found = admit(waiting, rows_max, bytes_max, in_step, turn)
    rows = sum(found.values())
    assert set(found) == set(waiting)
    assert all(count <= waiting[name].rows for name, count in found.items())
    assert rows >= min(len(waiting), 1)
    assert not rows_max or rows <= rows_max
    byte_count = sum(count * waiting[name].row_bytes for name, count in found.items())
    assert not bytes_max or byte_count <= bytes_max or rows == 1
    if not rows_max and not bytes_max:
        assert rows == sum(each.rows for each in waiting.values())


def test_where_there_is_less_than_a_row_for_each_all_have_their_turn() -> None:
    waiting = {name: Waiting(10, 100) for name in ("a", "b", "c")}
    for rows_max, bytes_max in ((1, 0), (0, 50)):
        first = [
            max(found, key=found.__getitem__)
            for found in (admit(waiting, rows_max, bytes_max, True, turn) for turn in range(3))
        ]
        assert first == ["a", "b", "c"]


# Partitions


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200_000)), max_size=5), st.integers(0, 20)
)
def test_partitions_hold_each_row_once_and_are_as_many_as_are_wanted(
    given_ranges: list[tuple[int, int]], partitions_min: int
) -> None:
    ranges = [
        Range(f"n{at}", 7, start, start + rows)
        for at, (start, rows) in enumerate(given_ranges)
        if rows
    ]
    parts = cut(ranges, partitions_min)
    joined: list[Range] = []
    for part in parts:
        assert part.ranges
        assert sum(each.end - each.start for each in part.ranges) <= PARTITION_ROWS
        for each in part.ranges:
            if joined and joined[-1].shard == each.shard:
                assert joined[-1].end == each.start
                joined[-1] = joined[-1]._replace(end=each.end)
            else:
                joined.append(each)
    assert joined == ranges
    total = sum(each.end - each.start for each in ranges)
    assert len(parts) >= min(partitions_min, total)
    assert len(parts) <= max(2 * partitions_min, -(-total // PARTITION_ROWS))


def test_small_ranges_share_a_task() -> None:
    ranges = [Range(f"q{at}", 7, 0, 10) for at in range(1000)]
    assert len(cut(ranges, 0)) == 1


def test_rows_between_offsets_are_those_that_came_with_the_batch() -> None:
    start = Offset(
        LOG,
        {
            "n1": Position(7, 10),
            "n2": Position(7, 5),
            "n3": Position(7, 4, 1),
            "gone": Position(7, 1),
            "lost": Position(6, 90),
            "late": Position(7, 3),
        },
    )
    end = Offset(
        LOG,
        {
            "n1": Position(7, 30, None, 99),
            "n2": Position(7, 5),
            "n3": Position(7, 4, 1),
            "new": Position(3, 8, 2),
            "lost": Position(7, 4, 0),
            "late": Position(7, 9, 6),
        },
    )
    assert ranges_between(start, end) == [
        Range("n1", 7, 10, 30, 99),
        Range("new", 3, 2, 8),
        Range("lost", 7, 0, 4),
        Range("late", 7, 6, 9),
    ]


# Shards that come and go


def shard(name: str, first: int, following: int, incarnation: int = 7, **more: Any) -> Shard:
    return Shard(name, incarnation, first, following, **more)


def look(*shards: Shard) -> dict[str, Shard]:
    return {each.name: each for each in shards}


def compare(
    offset: Offset, shards: dict[str, Shard], gone: str = "", seen: dict[str, int] | None = None
) -> Survey:
    return survey(
        offset,
        shards,
        lambda name, position: name == gone,
        seen or {},
        lambda each: each.first_index,
    )


def test_a_shard_that_is_there_goes_on_and_a_new_one_begins_with_its_first_row() -> None:
    offset = Offset(LOG, {"n1": Position(7, 10)})
    found = compare(offset, look(shard("n1", 3, 20), shard("n2", 4, 9)))
    assert found == Survey({"n1": (7, 10, False), "n2": (7, 4, True)}, {}, [], [])


def test_a_shard_that_is_away_keeps_its_place() -> None:
    offset = Offset(LOG, {"n1": Position(7, 10)})
    assert compare(offset, {}).kept == {"n1": Position(7, 10)}


def test_a_shard_that_is_gone_is_a_loss_unless_all_that_was_seen_is_read() -> None:
    offset = Offset(LOG, {"n1": Position(7, 10)})
    assert compare(offset, {}, "n1").losses[0][:3] == ("n1", 10, None)
    assert compare(offset, {}, "n1", {"n1": 11}).losses[0][:3] == ("n1", 10, None)
    found = compare(offset, {}, "n1", {"n1": 10})
    assert (found.losses, found.gone) == ([], ["n1"])


def test_what_retention_has_dropped_is_a_loss_of_so_many_rows() -> None:
    offset = Offset(LOG, {"n1": Position(7, 10)})
    found = compare(offset, look(shard("n1", 15, 20)))
    assert found.losses == [Loss("shard n1", 10, 15, DROPPED)]
    assert found.begins == {"n1": (7, 15, True)}


def test_a_lost_disk_is_a_loss_and_the_shard_begins_anew() -> None:
    offset = Offset(LOG, {"n1": Position(7, 10)})
    found = compare(offset, look(shard("n1", 0, 20, 8)))
    assert found.losses[0][:3] == ("shard n1", 10, None)
    assert found.begins == {"n1": (8, 0, True)}


def test_a_leader_that_lags_behind_what_was_read_is_waited_for() -> None:
    offset = Offset(LOG, {"n1": Position(7, 10)})
    shards = look(shard("n1", 0, 8))
    found = compare(offset, shards)
    assert advance(offset, found, shards, ALL, False, 0, 0) == offset


# Where a batch ends


def test_a_batch_goes_to_the_end_and_says_where_new_shards_begin() -> None:
    offset = Offset(LOG, {"n1": Position(7, 10), "n2": Position(7, 5)})
    shards = look(shard("n1", 0, 20), shard("n3", 4, 9), shard("n4", 0, 0))
    end = advance(offset, compare(offset, shards), shards, ALL, False, 1 << 50, 0)
    assert end.shards == {"n1": Position(7, 20), "n2": Position(7, 5), "n3": Position(7, 9, 4)}
    after = advance(end, compare(end, shards), shards, ALL, False, 1 << 50, 0)
    assert after == end


def test_a_batch_is_bounded_and_does_not_go_beyond_its_target() -> None:
    offset = Offset("archive", {"1": Position(7, 0), "2": Position(7, 0), "3": Position(7, 0)})
    shards = look(shard("1", 0, 1000), shard("2", 0, 6), shard("3", 0, 50))
    found = compare(offset, shards)
    end = advance(offset, found, shards, Bounds(30, 0, None), True, 0, 0)
    assert [each.next_index for each in end.shards.values()] == [12, 6, 12]
    target = {"1": (7, 900), "2": (6, 5)}
    end = advance(offset, found, shards, Bounds(0, 0, target), True, 0, 0)
    assert [each.next_index for each in end.shards.values()] == [900, 0, 0]


def test_skipped_rows_move_the_place_of_a_shard_that_has_nothing_else() -> None:
    offset = Offset(LOG, {"n1": Position(7, 10)})
    shards = look(shard("n1", 15, 15))
    end = advance(offset, compare(offset, shards), shards, ALL, False, 0, 0)
    assert end.shards == {"n1": Position(7, 15, 15)}
    assert ranges_between(offset, end) == []
    assert advance(end, compare(end, shards), shards, ALL, False, 0, 0) == end


def test_a_fast_clock_is_noted_with_the_batch_and_only_there() -> None:
    offset = Offset(LOG, {"n1": Position(7, 0), "n2": Position(7, 0)})
    now_ms = 1_700_000_000_000
    fast = shard("n1", 0, 5, last_ms=now_ms + CLOCK_AHEAD_MS + 1)
    shards = look(fast, shard("n2", 0, 5, last_ms=now_ms + CLOCK_AHEAD_MS))
    end = advance(offset, compare(offset, shards), shards, ALL, False, now_ms, 0)
    assert end.shards == {"n1": Position(7, 5, None, now_ms), "n2": Position(7, 5)}
    assert advance(end, compare(end, shards), shards, ALL, False, now_ms + 1, 0) == end
    archive = advance(offset, compare(offset, shards), shards, ALL, True, now_ms, 0)
    assert archive.shards["n1"] == Position(7, 5)


# Losses


def test_a_loss_fails_and_says_what_is_lost_and_what_to_do() -> None:
    losses = [Loss("shard n1", 10, 15, DROPPED)]
    with pytest.raises(DataLossError) as error:
        tell(losses, fail=True)
    text = str(error.value)
    assert "shard n1: 5 rows, 10 to 14, were dropped before they were read" in text
    assert "failOnDataLoss=false" in text
    assert "archive-max-messages" in text


def test_a_loss_is_counted_and_only_warned_of_where_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    losses = [Loss(f"shard n{at}", 10, 15 if at else None, DROPPED) for at in range(9)]
    with caplog.at_level(logging.WARNING):
        tell(losses, fail=False)
    assert "at least 40 rows" in caplog.text
    assert "shard n0: rows from 10 on" in caplog.text
    assert "and so at 4 more" in caplog.text
    tell([], fail=True)
