"""Figures of the operator."""

from __future__ import annotations

from headrace_operator.metrics import Metrics


def test_what_is_counted_is_exposed() -> None:
    metrics = Metrics()
    metrics.resources("Queue", lambda: 3)
    for action in ("Drain", "Drain", "Restart"):
        metrics.count("steps", "action", action)
    lines = metrics.exposition().splitlines()
    assert 'headrace_operator_steps_total{action="Drain"} 2' in lines
    assert 'headrace_operator_steps_total{action="Restart"} 1' in lines
    assert 'headrace_operator_resources{kind="Queue"} 3' in lines
    assert "# TYPE headrace_operator_scalings_total counter" in lines
