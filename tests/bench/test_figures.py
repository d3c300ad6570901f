"""The arithmetic of the benchmarks' reports."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FIGURES = Path(__file__).resolve().parents[2] / "bench" / "replication" / "figures.py"


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    """The module: benchmarks are run as programs and are not on the path."""
    spec = importlib.util.spec_from_file_location("bench_figures", FIGURES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    [(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 2), (100, 0.99, 99), (101, 0.99, 100), (100, 1.0, 100)],
)
def test_a_percentile_is_the_smallest_value_that_the_share_does_not_exceed(
    figures: ModuleType, count: int, share: float, expected: int
) -> None:
    assert figures.percentile(range(1, count + 1), share) == expected


def test_latency_is_in_milliseconds_and_takes_any_order(figures: ModuleType) -> None:
    assert figures.latency([0.003, 0.001, 0.002]) == (2.0, 3.0)
    assert figures.latency([]) == (0.0, 0.0)


def test_only_the_named_section_of_a_report_is_replaced(
    figures: ModuleType, tmp_path: Path
) -> None:
    report = tmp_path / "report.md"
    report.write_text("a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n<!-- y: begin -->\n")
    figures.replace_section("x", "new", report)
    expected = "a\n<!-- x: begin -->\nnew\n<!-- x: end -->\nb\n<!-- y: begin -->\n"
    assert report.read_text() == expected
    with pytest.raises(ValueError, match="unpack"):
        figures.replace_section("z", "new", report)
    assert report.read_text() == expected


def test_a_table_has_a_line_for_each_row(figures: ModuleType) -> None:
    assert figures.table(["what", "ms"], [["a", "1"], ["b", "2"]]).splitlines() == [
        "| what | ms |",
        "| --- | ---: |",
        "| a | 1 |",
        "| b | 2 |",
    ]
