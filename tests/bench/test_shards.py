"""The table of messages a second by shards."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


def test_ratios_are_of_medians_to_one_shard_and_to_as_many_clusters_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    shards = importlib.import_module("shards")
    case, sample = shards.Case, shards.Sample
    found = {
        case(0.1, 1, 1): [sample(rate, 9.0, 1.0) for rate in (90.0, 100.0, 500.0)],
        case(0.1, 2, 1): [sample(180.0, 9.5, 2.0)],
        case(0.1, 1, 2): [sample(170.0, 9.5, 2.0)],
        case(0.1, 4, 1): [sample(300.0, 9.5, 2.0)],
        case(0.1, 1, 4): [sample(320.0, 9.5, 2.0)],
        case(0.0, 1, 1): [sample(2000.0, 5.0, 1.0)],
        case(0.0, 2, 1): [sample(800.0, 5.0, 1.0)],
        case(0.0, 1, 2): [sample(1000.0, 5.0, 1.0)],
    }
    rows = [[cell.strip() for cell in line.split("|")[1:8]] for line in shards.table(found)[2:]]
    assert rows == [
        ["0.1", "1", "1", "100", "1.00", "1.00", "1.00"],
        ["0.1", "2", "1", "180", "1.80", "0.90", "1.00"],
        ["0.1", "1", "2", "170", "1.70", "0.85", "0.94"],
        ["0.1", "4", "1", "300", "3.00", "0.75", "1.00"],
        ["0.1", "1", "4", "320", "3.20", "0.80", "1.07"],
        ["none", "1", "1", "2,000", "1.00", "", "1.00"],
        ["none", "2", "1", "800", "0.40", "", "1.00"],
        ["none", "1", "2", "1,000", "0.50", "", "1.25"],
    ]
