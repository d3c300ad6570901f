"""The pipeline's own distribution: what its wheel holds and asks for. Needs no Spark."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from headrace_broker.model import build_info

ROOT = Path(__file__).resolve().parent.parent
PIPELINE = ROOT / "pipeline"
# Spark finds data sources in modules of this name at top level, and registers them.
REGISTERING = "pyspark_"


def table(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def name_and_bound(requirement: str) -> tuple[str, str]:
    name, _, bound = requirement.partition(">=")
    return name, bound


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=PIPELINE, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_modules_that_register_the_sources_are_at_the_top(wheel_names: set[str]) -> None:
    here = {path.name for path in PIPELINE.glob("*.py")}
    assert all(name.startswith(REGISTERING) for name in here)
    at_top = {name for name in wheel_names if "/" not in name}
    assert at_top == here
    options = table(PIPELINE)["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert here <= set(options["only-include"])


def test_every_module_and_every_file_beside_it_is_in_the_wheel(wheel_names: set[str]) -> None:
    here = {
        path.relative_to(PIPELINE).as_posix()
        for path in (PIPELINE / "headrace_pipeline").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "headrace_pipeline/jobs/log4j2.properties" in here
    assert {name for name in wheel_names if name.startswith("headrace_pipeline/")} == here


def test_the_pipeline_needs_the_client_and_never_the_broker() -> None:
    names = {name_and_bound(each)[0] for each in table(PIPELINE)["project"]["dependencies"]}
    assert "headrace-client" in names
    assert not {"headrace", "headrace-broker", "kopf", "aiohttp"} & names


def test_every_dependency_has_a_bound_a_reason_and_a_version_for_ci() -> None:
    reasons = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].lower() for line in lines}
    for requirement in table(PIPELINE)["project"]["dependencies"]:
        name, bound = name_and_bound(requirement)
        assert bound, f"{requirement} has no lower bound"
        if not name.startswith("headrace-"):
            assert f"| {name} |" in reasons, f"{name} has no line in CONTRIBUTING.md"
            assert name.lower() in pinned, f"{name} has no version in constraints.txt"


def test_the_extra_takes_the_pipeline_that_is_here_and_that_the_client() -> None:
    [extra] = table(ROOT)["project"]["optional-dependencies"]["pipeline"]
    own = table(PIPELINE)["project"]
    assert name_and_bound(extra)[0] == own["name"]
    client = next(each for each in own["dependencies"] if each.startswith("headrace-client"))
    for requirement in (extra, client):
        assert build_info.VERSION.startswith(f"{name_and_bound(requirement)[1]}.")
    init = (PIPELINE / "headrace_pipeline" / "__init__.py").read_text(encoding="utf-8")
    assert f'__version__ = "{build_info.VERSION}"' in init
