"""The arithmetic of the overload benchmark."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def goals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module: benchmarks are run as programs and are not on the path."""
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("pressure.goals")


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("pressure.generator")


def test_a_group_is_written_as_the_generator_takes_it(generator: ModuleType) -> None:
    text = generator.Group("p", 200, publish="q", queues=50, window=100).text()
    pairs = dict(pair.split("=") for pair in text.split(","))
    assert (pairs["name"], pairs["connections"], pairs["publish"]) == ("p", "200", "q")
    assert "consume" not in pairs
    source = generator.SOURCE.read_text()
    assert all(f'!strcmp(part, "{key}")' in source for key in generator.Group._fields)


def test_rates_are_of_the_measured_seconds_only(generator: ModuleType) -> None:
    each = {"sent_each": [9, 10, 20, 9], "confirmed_each": [0, 8, 10, 9], "received_each": [0] * 4}
    counts = dict.fromkeys(["sent", "confirmed", "received"], 1)
    lost = {"disconnected": 2, "refused": 3, "blocked": 4}
    times = {f"{kind}_ms_{part}": 0.5 for kind in ("e2e", "confirm") for part in ("p50", "p99")}
    printed = json.dumps({"groups": {"p": {**each, **counts, **lost, **times}}})
    found = generator.parse_figures(printed, generator.Times(1, 2, 1))["p"]
    assert (found.sent_s, found.confirmed_s, found.received_s) == (15, 9, 0)
    assert (found.disconnected, found.refused, found.blocked) == (2, 3, 4)
    assert found.e2e_ms == (0.5, 0.5)


def test_loads_in_turn_give_the_median_of_each_figure(
    generator: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    cases = importlib.import_module("pressure.cases")
    received = iter([(30, 9.0), (1, 5.0), (2, 6.0), (10, 7.0), (20, 8.0), (3, 4.0)])
    ran: list[str] = []

    class Loader:
        def run(self, groups: Any, _times: Any) -> SimpleNamespace:
            ran.append(groups[0].name)
            rate, p99 = next(received)
            figures = generator.GroupFigures(0, 0, rate, (1.0, p99), (0, 0), *[0] * 6)
            return SimpleNamespace(groups={"c": figures})

    loads = [[generator.Group(name, publish="q")] for name in ("one", "other")]
    one, other = cases.in_turn(Loader(), loads, generator.Times(1, 2, 1))
    assert ran == ["one", "other", "other", "one", "one", "other"]
    assert (one["c"].received_s, one["c"].e2e_ms) == (20, (1.0, 8.0))
    assert (other["c"].received_s, other["c"].e2e_ms) == (2, (1.0, 5.0))


@pytest.mark.parametrize(
    ("least", "most", "value", "met"),
    [(0.9, None, 0.9, True), (0.9, None, 0.89, False), (None, 0, 1, False), (None, None, 1, None)],
)
def test_a_measure_knows_whether_its_goal_is_met(
    goals: ModuleType, least: float | None, most: float | None, value: float, met: bool | None
) -> None:
    assert goals.Measure("a", "x", value, least, most, 1).met is met


def test_goals_are_judged_on_the_median_of_the_rounds(goals: ModuleType) -> None:
    rounds = [[goals.Measure("a", "x", value, 0.9)] for value in (0.1, 0.95, 1.0)]
    (median,) = goals.medians(rounds)
    assert (median.value, median.met) == (0.95, True)


def test_a_latency_is_compared_with_what_may_be_under_way(goals: ModuleType) -> None:
    assert goals.share_of_bound(500, 10_000, 10_000) == 0.5
    assert goals.share_of_bound(0, 10_000, 0) == float("inf")


def test_what_one_broker_lacks_is_empty_beside_the_other(goals: ModuleType) -> None:
    ours = [goals.Measure("a", "ratio", 0.5, 0.9, None, 2), goals.Measure("b", "rate", 1234)]
    theirs = [goals.Measure("a", "ratio", 0.95, 0.9, None, 2)]
    assert goals.side_by_side(ours, theirs).splitlines()[2:] == [
        "| a | ratio | >= 0.90 | 0.50 | **no** | 0.95 | yes |",
        "| b | rate |  | 1,234 |  |  |  |",
    ]


def test_memory_of_a_node_is_that_of_all_its_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)
    memory, peers = map(importlib.import_module, ("pressure.memory", "peers"))
    idle = "import signal; print(flush=True); signal.pause()"
    shard = f"subprocess.Popen([sys.executable, '-c', {idle!r}, '--shard', number])"
    code = f"import subprocess, sys; [each.wait() for each in [{shard} for number in '01']]"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as node:
        assert node.stdout is not None
        for _ in range(2):
            node.stdout.readline()
        found = peers.node_processes(node.pid)
        assert len(found) == 2
        assert node.pid not in found
        assert [peers.node_processes(pid) for pid in found] == [[pid] for pid in found]
        with memory.PeakMemory([node.pid]) as peak:
            assert memory.node_bytes(node.pid) > max(map(memory.resident_bytes, found))
            os.kill(found[0], signal.SIGKILL)
            deadline = time.monotonic() + 60
            while not peak.ended:
                assert time.monotonic() < deadline, "the end of a shard is not seen"
                time.sleep(0.01)
        os.kill(found[1], signal.SIGKILL)
    assert peak.ended == {found[0]}
