"""Pieces of segments in memory, found by the bytes that they hold."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from headrace_raftlog.model.limits import READ_PIECES_MAX
from headrace_raftlog.storage.segment.piece_cache import Piece, PieceCache

DATA = bytes(range(256)) * 8


def piece(offset: int, count: int) -> Piece:
    return Piece(offset, DATA[offset : offset + count], None)


@pytest.fixture
def cache() -> PieceCache:
    return PieceCache()


def test_bytes_are_found_in_whichever_piece_holds_all_of_them(cache: PieceCache) -> None:
    long, short = piece(100, 200), piece(150, 10)
    cache.keep(1, short)
    cache.keep(1, long)
    assert cache.find(1, 150, 10) is short
    assert cache.find(1, 155, 10) is long, "the nearest piece ends too early"
    assert cache.find(1, 99, 2) is None
    assert cache.find(1, 299, 2) is None
    assert cache.find(2, 150, 10) is None


def test_a_failed_piece_is_found_at_its_offset_only(cache: PieceCache) -> None:
    failed = Piece(100, b"", OSError("bad sector"))
    cache.keep(1, failed)
    assert cache.find(1, 100, 50) is failed
    assert cache.find(1, 101, 50) is None


def test_a_piece_takes_the_place_of_one_at_its_offset(cache: PieceCache) -> None:
    cache.keep(1, piece(100, 10))
    again = piece(100, 20)
    cache.keep(1, again)
    assert cache.find(1, 105, 10) is again
    assert cache.held_bytes == 20


def test_a_piece_that_was_used_outlives_those_that_were_not(cache: PieceCache) -> None:
    first = piece(0, 10)
    cache.keep(1, first)
    second = piece(10, 10)
    cache.keep(1, second)
    for _ in range(2):
        cache.age()
    cache.use(1, first)
    for at in range(READ_PIECES_MAX - 1):
        cache.keep(2, piece(10 * at, 10))
    assert cache.find(1, 0, 10) is first
    assert cache.find(1, 10, 10) is None


@pytest.mark.parametrize("seed", range(20))
def test_it_finds_what_a_look_at_every_piece_would_find(cache: PieceCache, seed: int) -> None:
    rng = random.Random(seed)
    kept: dict[tuple[int, int], Piece] = {}
    for _ in range(600):
        sequence, offset, count = rng.randrange(2), rng.randrange(600), rng.randrange(1, 80)
        chance = rng.random()
        if chance < 0.06:
            kept[sequence, offset] = piece(offset, count)
            cache.keep(sequence, kept[sequence, offset])
        elif chance < 0.1:
            kept.pop((sequence, offset), None)
            cache.drop(sequence, offset)
        elif chance < 0.11:
            kept = {key: each for key, each in kept.items() if key[0] != sequence}
            cache.forget(sequence)
        found = cache.find(sequence, offset, count)
        holding = [
            each
            for (other, start), each in kept.items()
            if other == sequence and start <= offset and offset + count <= start + len(each.data)
        ]
        assert (found is None) == (not holding)
        assert found is None or found in holding
        assert cache.held_bytes == sum(len(each.data) for each in kept.values())


class Looked(dict[Any, Any]):
    """A dict that counts who goes through all of it."""

    count = 0

    def __iter__(self) -> Iterator[Any]:
        self.count += 1
        return super().__iter__()

    def items(self) -> Any:
        self.count += 1
        return super().items()

    def values(self) -> Any:
        self.count += 1
        return super().values()


def test_what_comes_does_not_look_at_all_that_is_awaited(cache: PieceCache) -> None:
    """Thousands are awaited in one turn of the loop while a log is replayed."""
    every = Looked()
    cache._pieces = every
    for number in range(3 * READ_PIECES_MAX):
        cache.keep(number, piece(0, 1))
    assert len(every) == 3 * READ_PIECES_MAX, "somebody may come for each"
    for number in range(2 * READ_PIECES_MAX):
        found = cache.find(number, 0, 1)
        assert found is not None
        cache.use(number, found)
        cache.keep(10_000 + number, piece(0, 1))
    assert every.count == 0
    cache.age()
    assert every.count == 1
