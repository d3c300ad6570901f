"""The Dockerfile: what it promises to the manifests that run its image."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from headrace_pipeline.jobs.spec import ENTRY, SPARK_VERSION
from headrace_sparkdriver.driver import USER

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "pipeline" / "Dockerfile"
TEXT = PATH.read_text(encoding="utf-8")


def final_stage() -> str:
    return TEXT.rpartition("FROM ${SPARK_IMAGE}\n")[2]


def pinned(name: str) -> str:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    [version] = [line.partition("==")[2] for line in lines if line.startswith(f"{name}==")]
    return version


def test_spark_is_a_build_argument_of_the_version_that_is_tested() -> None:
    [image] = re.findall(r"^ARG SPARK_IMAGE=(\S+)$", TEXT, re.MULTILINE)
    assert image.startswith(f"apache/spark:{pinned('pyspark')}-")
    assert pinned("pyspark") == SPARK_VERSION
    assert len(re.findall(r"^FROM \$\{SPARK_IMAGE\}", TEXT, re.MULTILINE)) == 2


def test_it_runs_as_the_user_of_the_manifests_and_keeps_sparks_entry_point() -> None:
    assert f"\nUSER {USER}:{USER}\n" in final_stage()
    assert "\nENTRYPOINT" not in TEXT
    assert "\nRUN " not in final_stage()


def test_what_an_application_starts_is_in_the_image() -> None:
    assert f"> {ENTRY.removeprefix('local://')} " in TEXT


def test_what_it_copies_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for source in re.findall(r"^COPY (?!--from)(\S+) ", TEXT, re.MULTILINE):
        assert (ROOT / source).exists()
        assert f"!{source}" in ignored


def test_dependencies_are_read_from_the_distributions() -> None:
    for name in ("protos", "client", "pipeline"):
        table = tomllib.loads((ROOT / name / "pyproject.toml").read_text(encoding="utf-8"))
        assert table["project"]["dependencies"]
    assert 'startswith(("headrace", "pyspark"))' in TEXT
