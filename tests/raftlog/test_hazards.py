"""The table of hazards in INTERNALS.md: every number is there, and every test that it names."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from headrace_raftlog.simulator.host_faults import HostFaults

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
NUMBERS = 38


def rows() -> dict[int, str]:
    """Return the last column of the table by hazard."""
    text = (ROOT / "raftlog" / "INTERNALS.md").read_text()
    section = text.partition("\n## Hazards\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", section, re.MULTILINE)
    return {int(number): evidence for number, evidence in found}


def injected(path: Path) -> set[str]:
    """Return the names of the bugs that a module of mutation tests knows by patches."""
    return set(re.findall(r'^    "(\w+)": [\[(]', path.read_text(), re.MULTILINE))


def exists(name: str) -> bool:
    """Return whether a name that the table gives stands for something."""
    kind, _, bug = name.partition(" ")
    if kind == "mutation":
        known = injected(HERE / "simulator" / "test_mutations.py")
        return bug in known | {field.name for field in fields(HostFaults)}
    if kind == "crash":
        return bug in injected(HERE / "crash_explorer" / "test_mutations.py")
    path, _, test = name.partition("::")
    file = (ROOT if path.startswith(("tests/", "e2e/")) else HERE) / path
    if not file.is_file():
        return False
    if not test:
        return path.startswith("golden/")
    return re.search(rf"^def {test}\(", file.read_text(), re.MULTILINE) is not None


@pytest.mark.parametrize("number", range(1, NUMBERS + 1))
def test_hazard_has_tests_that_exist(number: int) -> None:
    names = re.findall(r"`([^`]+)`", rows().get(number, ""))
    assert names, "not in the table, or without a test"
    assert [name for name in names if not exists(name)] == []


def test_table_has_no_other_numbers() -> None:
    assert set(rows()) == set(range(1, NUMBERS + 1))


@pytest.mark.parametrize(
    "name",
    [
        "mutation no_such_bug",
        "crash truncate_always",
        "golden/no_such_script.txt",
        "core/test_reads.py",
        "core/test_reads.py::test_no_such_thing",
        "no/such/file.py::test_it",
    ],
)
def test_name_that_stands_for_nothing_is_noticed(name: str) -> None:
    assert not exists(name)


def test_every_golden_script_is_for_a_hazard_or_for_reading() -> None:
    """Scripts without a hazard show the protocol; a new one has to be listed."""
    named = set(re.findall(r"`golden/(\w+)\.txt`", " ".join(rows().values())))
    scripts = {path.stem for path in (HERE / "golden").glob("*.txt")}
    shown = {
        "conflict_hints",
        "election",
        "leader_writes_late",
        "learner",
        "single_voter",
        "unreachable",
    }
    assert scripts == named | shown
