"""The table of messages a second by shards."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


def test_ratios_are_those_of_medians_to_the_fewest_shards_of_the_same_quota(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    shards = importlib.import_module("shards")
    sample = shards.Sample
    found = {
        (1, 0.1): [sample(rate, 9.0, 1.0) for rate in (90.0, 100.0, 500.0)],
        (2, 0.1): [sample(170.0, 9.5, 2.0)],
        (4, 0.1): [sample(320.0, 9.5, 2.0)],
        (1, 0.0): [sample(2000.0, 5.0, 1.0)],
        (2, 0.0): [sample(1000.0, 5.0, 1.0)],
    }
    rows = [[cell.strip() for cell in line.split("|")[1:6]] for line in shards.table(found)[2:]]
    assert rows == [
        ["0.1", "1", "100", "1.00", "1.00"],
        ["0.1", "2", "170", "1.70", "0.85"],
        ["0.1", "4", "320", "3.20", "0.80"],
        ["none", "1", "2,000", "1.00", ""],
        ["none", "2", "1,000", "0.50", ""],
    ]
