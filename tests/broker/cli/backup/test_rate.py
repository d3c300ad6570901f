"""Bytes a second, and which queues."""

from __future__ import annotations

import click
import pytest

from headrace_broker.cli.backup.rate import CHUNK_BYTES, CHUNK_BYTES_MIN, Bytes, Rate
from headrace_broker.cli.backup.selection import Selection


def test_bytes_pass_at_the_rate_and_at_any_without_one() -> None:
    now, slept = 0.0, []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        slept.append(seconds)

    rate = Rate(1000, lambda: now, sleep)
    for _ in range(5):
        rate.take(500)
    assert now == 2.0
    now += 10
    rate.take(1)
    assert now == 12.0
    unbounded = Rate(None, lambda: now, sleep)
    unbounded.take(1 << 40)
    assert now == 12.0


def test_chunks_are_small_where_the_rate_is() -> None:
    assert Rate(None).chunk_bytes == Rate(1 << 30).chunk_bytes == CHUNK_BYTES
    assert Rate(400_000).chunk_bytes == 100_000
    assert Rate(10).chunk_bytes == CHUNK_BYTES_MIN


@pytest.mark.parametrize(
    ("text", "byte_count"),
    [("1", 1), ("500k", 500_000), ("50M", 50_000_000), ("8MiB", 8 << 20), ("1GB", 10**9)],
)
def test_numbers_of_bytes(text, byte_count) -> None:
    assert Bytes().convert(text, None, None) == byte_count


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5M", "M", "1TB", "1 M", "1" * 16])
def test_what_is_no_number_of_bytes(text) -> None:
    with pytest.raises(click.BadParameter, match="must be a number of bytes"):
        Bytes().convert(text, None, None)


@pytest.mark.parametrize(
    ("patterns", "vhost", "chosen"),
    [
        ((), None, ["/ orders", "/ logs", "b orders"]),
        ((), "b", ["b orders"]),
        (("^ord",), None, ["/ orders", "b orders"]),
        (("^ord",), "/", ["/ orders"]),
        (("b=.*", "gs$"), None, ["/ logs", "b orders"]),
        (("b=.*", "gs$"), "/", ["/ logs", "b orders"]),
        (("=logs",), None, ["/ logs"]),
    ],
)
def test_queues_are_chosen_by_name_and_vhost(patterns, vhost, chosen) -> None:
    selection = Selection(patterns, vhost)
    queues = [("/", "orders"), ("/", "logs"), ("b", "orders")]
    assert [f"{v} {n}" for v, n in queues if selection.has(v, n)] == chosen


def test_what_is_no_expression_is_refused() -> None:
    with pytest.raises(click.BadParameter, match=r"'\(' is no regular expression"):
        Selection(("/=(",), None)
