"""Thousands of schedules of the correct core, and proof that they reach what they should."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from headrace_raftlog.simulator.__main__ import main, replay_command
from headrace_raftlog.simulator.cluster import Plan, Simulation, simulate
from headrace_raftlog.simulator.parameters import PROFILES

SEEDS = 2000
SEEDS_PER_PROFILE = 60
CHUNK = 50


def run_chunk(first: int, last: int, profile: str | None) -> list[tuple[str, int, int, int, int]]:
    """Run seeds; return failures as text and what the others reached."""
    rows = []
    for seed in range(first, last):
        plan = Plan(seed, profile)
        outcome = simulate(plan)
        failure = f"{outcome.violation}\n{replay_command(outcome, plan)}"
        rows.append(
            (
                "" if outcome.violation is None else failure,
                outcome.committed,
                outcome.acknowledged,
                outcome.leaderships,
                outcome.quiesced,
            )
        )
    return rows


def run_seeds(chunks):
    """Run chunks of seeds in two processes."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        futures = [pool.submit(run_chunk, *chunk) for chunk in chunks]
        return [row for future in futures for row in future.result()]


def test_no_seed_violates_an_invariant():
    rows = run_seeds([(first, first + CHUNK, None) for first in range(0, SEEDS, CHUNK)])
    assert [row[0] for row in rows if row[0]] == []
    assert len(rows) == SEEDS
    committed, acknowledged, leaderships, quiesced = (
        [row[column] for row in rows] for column in range(1, 5)
    )
    assert sum(committed) > 8 * SEEDS
    assert sum(acknowledged) > 4 * SEEDS
    assert sum(leaderships) > 2 * SEEDS
    assert sum(quiesced) > SEEDS


def test_no_seed_of_any_profile_violates_an_invariant():
    rows = run_seeds([(10_000, 10_000 + SEEDS_PER_PROFILE, name) for name in sorted(PROFILES)])
    assert [row[0] for row in rows if row[0]] == []


def test_same_seed_gives_the_same_trace_whatever_the_hash_seed():
    traces = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "headrace_raftlog.simulator", "--seed", "17", "--trace"]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        traces.append(done.stdout)
    assert traces[0].count("\n") > 300
    assert traces[0] == traces[1]


def test_other_seed_gives_another_trace():
    assert simulate(Plan(1, tracing=True)).trace != simulate(Plan(2, tracing=True)).trace


def test_tracing_changes_nothing():
    for seed in range(5):
        traced = simulate(Plan(seed, tracing=True))
        plain = simulate(Plan(seed))
        assert (traced.events, traced.committed) == (plain.events, plain.committed)


def test_failing_seed_prints_the_command_that_repeats_it(capsys, monkeypatch):
    def run(self):
        raise AssertionError("planted")

    monkeypatch.setattr(Simulation, "_run_under_faults", run)
    assert main(["--seeds", "4:6", "--profile", "quiet", "--events", "50"]) == 1
    output = capsys.readouterr().out
    assert "seed 4: AssertionError in the core: planted" in output
    command = "python -m headrace_raftlog.simulator --seed 5 --trace --profile quiet --events 50"
    assert command in output
    assert main(command.split()[3:]) == 1


def test_seeds_that_hold_exit_with_zero(capsys):
    assert main(["--seeds", "0:3", "--events", "100"]) == 0
    assert "3 seeds, 0 violations" in capsys.readouterr().out
    assert main(["--seed", "0", "--events", "100"]) == 0
    assert "all invariants held" in capsys.readouterr().out


@pytest.mark.parametrize("seeds", ["5", "5:5", "a:b", "6:5", ":"])
def test_wrong_range_is_refused(seeds):
    with pytest.raises(SystemExit, match="expected A:B"):
        main(["--seeds", seeds])


def test_golden_script_can_be_renewed(tmp_path):
    path = tmp_path / "script.txt"
    path.write_text("group voters=1\ncampaign 1\nready 1\n----\nold\n")
    assert main(["--rewrite", str(path)]) == 0
    assert path.read_text().splitlines()[4] == "1 ready 1: candidate t1 leader 0"
