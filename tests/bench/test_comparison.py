"""Tables of the comparison of brokers."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def comparison(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module: benchmarks are run as programs and are not on the path."""
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("comparison")


def figures(rate: float, sent: float, confirm: float) -> dict[str, float]:
    return {
        "received_s": rate,
        "sent_s": sent,
        "confirm_ms_p50": confirm,
        "confirm_ms_p99": 2 * confirm,
        "e2e_ms_p50": 3 * confirm,
        "e2e_ms_p99": 4 * confirm,
    }


def test_what_was_not_measured_has_no_figure_and_the_others_their_ratio(
    comparison: ModuleType,
) -> None:
    scenarios = [
        comparison.Scenario("small", []),
        comparison.Scenario("no confirms", [], confirms=False),
    ]
    samples = {
        ("headrace", "small"): [figures(rate, rate, 1.5) for rate in (3000, 1000, 9000)],
        ("headrace", "no confirms"): [figures(500, 2000, -1)],
        ("nats", "small"): [figures(1500, 1500, 2)],
    }
    versions = {"headrace": "headrace 1", "nats": "nats 2"}
    problems = ["rabbitmq is left out: apt-get install\nand more"]
    text = comparison.report(samples, versions, scenarios, 3, problems)
    assert "| small | 3,000 | 1,500 (1 : 2.00) |" in text
    assert "| no confirms | 500 of 2,000 published | - |" in text
    assert "| small | 1.50 / 3.00 | 2.00 / 4.00 |" in text
    assert "| small | 4.50 / 6.00 | 6.00 / 8.00 |" in text
    assert "- Not measured: rabbitmq is left out: apt-get install\n\n" in text
    assert text.startswith("- headrace 1\n- nats 2\n\nThree nodes each, in turn, ")


def test_every_peer_has_a_name_and_a_color(comparison: ModuleType) -> None:
    compare = importlib.import_module("compare")
    makers = compare.peers(Path("work"), Path("headrace"))
    assert list(makers) == list(comparison.LABELS) == list(comparison.COLORS)
