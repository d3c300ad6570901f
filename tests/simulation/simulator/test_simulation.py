"""Schedules of the correct core, and proof that they reach what they should."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headrace_simulation.simulator.__main__ import main, replay_command
from headrace_simulation.simulator.batch import run_chunk, run_seeds
from headrace_simulation.simulator.cluster import Simulation, simulate
from headrace_simulation.simulator.plan import Plan
from headrace_simulation.simulator.profiles import PROFILES

SEEDS = 400  # `make sim` runs thousands
SEEDS_PER_PROFILE = 25


@pytest.fixture(scope="module")
def tally():
    return run_seeds(Plan(0), 100_000, 100_000 + SEEDS, 2)


def told(tally):
    return [f"{violation}\n{replay_command(Plan(seed))}" for seed, violation in tally.told]


def test_no_seed_violates_an_invariant(tally):
    assert told(tally) == []
    assert tally.seeds == SEEDS


@pytest.mark.parametrize(
    ("name", "per_seed"),
    [
        ("committed", 8),
        ("leaders", 2),
        ("quiesced", 2),
        ("settled leaders", 0.02),
        ("idle groups without a node", 0.2),
        ("idle groups with links cut", 0.005),
        ("leader crashes", 1),
        ("reads of leaders", 1),
        ("reads of followers", 2),
        ("snapshots saved", 2),
        ("snapshots installed", 0.2),
        ("bodies fetched", 0.1),
        ("crashes while fetching", 0.01),
        ("memberships proposed", 0.4),
        ("joint commits", 0.2),
        ("quarantined", 0.05),
        ("wiped nodes", 0.05),
        ("groups deleted", 0.1),
        ("messages misrouted", 0.1),
        ("full disks", 0.2),
        ("sync error", 0.01),
        ("torn write", 0.1),
        ("clock jumps", 0.2),
        ("broken sessions", 0.2),
        ("flapping links", 0.1),
        ("transfers", 0.02),
    ],
)
def test_seeds_reach_what_they_should(tally, name, per_seed):
    assert tally.coverage[name] > per_seed * SEEDS


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_no_seed_of_any_profile_violates_an_invariant(profile):
    assert told(run_chunk(Plan(0, profile), 10_000, 10_000 + SEEDS_PER_PROFILE)) == []


def test_number_of_processes_changes_nothing():
    one = run_seeds(Plan(0, events=200), 0, 60, 1)
    two = run_seeds(Plan(0, events=200), 0, 60, 2)
    assert (one.events, one.coverage) == (two.events, two.coverage)


@pytest.mark.parametrize("profile", ["membership", "snapshot", "groups"])
def test_same_seed_gives_the_same_trace_whatever_the_hash_seed(profile):
    traces = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        command = [sys.executable, "-m", "headrace_simulation.simulator", "--seed", "17", "--trace"]
        done = subprocess.run(
            [*command, "--profile", profile],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        traces.append(done.stdout)
    assert traces[0].count("\n") > 300
    assert traces[0] == traces[1]


def test_other_seed_gives_another_trace():
    assert simulate(Plan(1, tracing=True)).trace != simulate(Plan(2, tracing=True)).trace


def test_tracing_changes_nothing():
    for seed in range(5):
        traced = simulate(Plan(seed, tracing=True))
        plain = simulate(Plan(seed))
        assert (traced.events, traced.coverage) == (plain.events, plain.coverage)


def test_failing_seed_prints_the_command_that_repeats_it(capsys, monkeypatch):
    def run(self):
        raise AssertionError("planted")

    monkeypatch.setattr(Simulation, "_run_under_faults", run)
    options = ["--profile", "quiet", "--events", "50", "--jobs", "1"]
    assert main(["--seeds", "4:6", *options]) == 1
    output = capsys.readouterr().out
    assert "seed 4: AssertionError in the core: planted" in output
    words = "--seed 5 --trace --profile quiet --events 50"
    assert f"PYTHONPATH=simulation python -m headrace_simulation.simulator {words}" in output
    assert main(words.split()) == 1


def test_seeds_that_hold_exit_with_zero(capsys):
    assert main(["--seeds", "0:3", "--events", "100", "--jobs", "1"]) == 0
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
