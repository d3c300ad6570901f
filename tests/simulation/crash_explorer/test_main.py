"""The command line."""

from __future__ import annotations

import pytest

from headrace_simulation.crash_explorer.__main__ import main
from headrace_simulation.crash_explorer.batch import Task, repeat_command, run_tasks
from headrace_simulation.crash_explorer.crash_point import KILL, CrashPoint
from headrace_simulation.crash_explorer.explorer import Bounds, Crash, Violation
from headrace_simulation.crash_explorer.history import History
from headrace_simulation.crash_explorer.observed_files import ObservedFiles


def test_counts_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workload", "batches", "--states", "50"]) == 0
    assert (
        "26 crash points, 50 states after a crash, 0 after a second one" in capsys.readouterr().out
    )


def test_several_processes_find_what_one_does() -> None:
    bounds = Bounds(states_max=20)
    tasks = [
        Task(name, seed, bounds, told=True) for name in ("batches", "mixed") for seed in (0, 1)
    ]
    found = list(run_tasks(tasks, 2))
    assert found == list(run_tasks(tasks, 1))
    assert [told.split(":")[0] for _, told in found] == [
        *("batches, seed 0", "batches, seed 1", "mixed, seed 0", "mixed, seed 1")
    ]


def test_trace_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workload", "batches", "--at", "10:kill/3:1", "--trace"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "1: sync_directory /data"
    assert any(line.startswith("after crash 2, 1: ") for line in out)


def test_violation_comes_with_the_command_that_repeats_it() -> None:
    point = CrashPoint(31, "call", ObservedFiles(), History({}).legal())
    violation = Violation((Crash(point, 0xA5), Crash(point, KILL)), "lost")
    assert repeat_command("mixed", 7, violation) == (
        "PYTHONPATH=simulation python -m headrace_simulation.crash_explorer "
        "--workload mixed --seed 7 --at 31:a5/31:kill --trace"
    )


@pytest.mark.parametrize("arguments", [["--at", "1:1"], ["--workload", "none"], ["--seed", "x"]])
def test_nonsense_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
