"""The Dockerfiles: what they promise to the manifests that run their images."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace_operator.builders.stateful_set import USER

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "broker" / "Dockerfile", ROOT / "operator" / "Dockerfile"]
CHART = ROOT / "charts" / "headrace"


def instructions(path: Path) -> list[tuple[str, str]]:
    """Instructions with their arguments, lines joined."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines if line]


def last(path: Path, name: str) -> str:
    return [arguments for each, arguments in instructions(path) if each == name][-1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
class TestDockerfile:
    def test_the_base_is_a_build_argument_and_the_image_has_a_stage_of_its_own(
        self, path: Path
    ) -> None:
        stages = [arguments for name, arguments in instructions(path) if name == "FROM"]
        assert instructions(path)[0][1].startswith("BASE=")
        assert len(stages) == 2
        assert stages[1] == "${BASE}"
        final = path.read_text(encoding="utf-8").partition("FROM ${BASE}\n")[2]
        assert "\nRUN " not in final, "the image itself needs no shell"

    def test_it_runs_as_the_user_of_the_manifests(self, path: Path) -> None:
        assert last(path, "USER") == f"{USER}:{USER}"

    def test_commands_need_no_shell(self, path: Path) -> None:
        for name in ("ENTRYPOINT", "CMD"):
            assert last(path, name).startswith("[")
        assert 'CMD ["' in last(path, "HEALTHCHECK")
        assert last(path, "STOPSIGNAL") == "SIGTERM"

    def test_what_it_copies_is_there_and_not_ignored(self, path: Path) -> None:
        ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        for name, arguments in instructions(path):
            if name == "COPY" and not arguments.startswith("--from"):
                for source in arguments.split()[:-1]:
                    assert (ROOT / source).exists(), source
                    assert f"!{source}" in ignored


def test_kopf_learns_a_name_for_its_user() -> None:
    assert "USER=headrace-operator" in last(FILES[1], "ENV")


def test_ports_and_module_of_the_operator_are_those_of_the_chart() -> None:
    deployment = (CHART / "templates" / "operator-deployment.yaml").read_text(encoding="utf-8")
    module = "--module=headrace_operator.handlers"
    assert module in deployment
    assert module in last(FILES[1], "ENTRYPOINT")
    values = (CHART / "values.yaml").read_text(encoding="utf-8")
    assert re.findall(r"(?:health|metrics): (\d+)", values) == last(FILES[1], "EXPOSE").split()
