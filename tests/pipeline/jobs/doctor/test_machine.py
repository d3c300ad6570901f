"""The doctor's report on a machine."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from headrace_pipeline.jobs.doctor.check import fail, ok, render
from headrace_pipeline.jobs.doctor.machine import (
    RANGES,
    check_java,
    check_packages,
    check_place,
    judge_java,
    parse_version,
)

ROOT = Path(__file__).resolve().parents[4]
FINE = {
    "pyspark": "4.3.0",
    "pyarrow": "26.0.1",
    "pandas": "2.3.3",
    "numpy": "2.4",
    "deltalake": "1.6",
}


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nmore', "ok"),
        ('openjdk version "21" 2023', "ok"),
        ('java version "1.8.0_292"', "fail"),
        ('openjdk version "11.0.2"', "fail"),
        ("what?", "warn"),
        ("", "warn"),
    ],
)
def test_java_is_judged_by_its_version(said: str, state: str) -> None:
    assert judge_java("java", said).state == state


def test_a_java_that_is_not_there_or_does_not_run_fails(tmp_path: Path) -> None:
    assert check_java({"JAVA_HOME": str(tmp_path)}).state == "fail"
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    assert "exit status 3" in check_java({"JAVA_HOME": str(tmp_path)}).says
    program.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    assert check_java({"JAVA_HOME": str(tmp_path)}) == ok("java", f"version 17 ({program})")


def test_the_ranges_of_packages_are_those_of_the_distribution() -> None:
    table = tomllib.loads((ROOT / "pipeline" / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = {}
    for requirement in table["project"]["dependencies"]:
        name, _, bounds = requirement.partition(">=")
        least, _, below = bounds.partition(",<")
        wanted[name] = (parse_version(least), parse_version(below) or None)
    assert {name: wanted[name] for name in RANGES} == RANGES


def test_packages_outside_their_range_fail_and_the_range_is_said() -> None:
    assert {each.state for each in check_packages(FINE)} == {"ok"}
    for name, version in [("pyspark", "4.4.0"), ("pyspark", "4.1.9"), ("pandas", "3.0.0.dev1")]:
        found = {each.name: each for each in check_packages(FINE | {name: version}, "on a")}
        assert found[f"{name} on a"].state == "fail"
    [gone] = [each for each in check_packages({}) if each.name == "pyspark"]
    assert gone == fail("pyspark", "is not installed", "pip install 'pyspark>=4.2,<4.4'")


def test_a_place_that_can_be_written_to_is_left_as_it_was(tmp_path: Path) -> None:
    found = check_place("table", f"file://{tmp_path}/not/there/yet")
    assert found.state != "fail"
    assert str(tmp_path / "not" / "there" / "yet") in found.says
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to_fails(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert check_place("table", str(file / "below")).state == "fail"
    assert check_place("table", "/proc/headrace").state == "fail"
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        assert check_place("table", str(tmp_path)).state == "fail"


def test_an_object_store_is_not_known_before_it_is_written_to() -> None:
    assert check_place("table", "s3://bucket/table").state == "warn"


def test_lines_say_what_to_do_below_what_was_found() -> None:
    lines = render([ok("java", "version 17"), fail("log-in", "refused", "look at --username")])
    assert lines == [
        "ok    java    version 17",
        "fail  log-in  refused",
        "              -> look at --username",
    ]
