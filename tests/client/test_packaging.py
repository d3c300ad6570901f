"""The client installs alone: what it imports, and what its generated code asks for."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import headrace_client
from headrace_broker import build_info

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "client" / "headrace_client"
NEEDED = {"grpc", "google", "headrace_client"}


def requirement(name: str) -> tuple[int, ...]:
    """The lower bound of a dependency."""
    table: dict[str, Any] = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())
    [found] = [each for each in table["project"]["dependencies"] if each.startswith(f"{name}>=")]
    return tuple(map(int, found.partition(">=")[2].split(".")))


def imported(path: Path) -> set[str]:
    """Top-level packages that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module.partition(".")[0])
    return found


def test_nothing_but_grpc_and_protobuf_is_imported() -> None:
    modules = list(CLIENT.rglob("*.py"))
    assert len(modules) > 20
    foreign = set().union(*map(imported, modules)) - set(sys.stdlib_module_names)
    assert foreign == NEEDED


def test_the_generated_code_runs_with_the_oldest_versions_that_are_allowed() -> None:
    texts = [path.read_text() for path in CLIENT.rglob("*_pb2*.py")]
    protobuf = {match[1] for text in texts for match in re.finditer(r"Version: ([\d.]+)\n", text)}
    grpc = {match[1] for text in texts for match in re.finditer(r"_VERSION = '([\d.]+)'", text)}
    for name, versions in (("protobuf", protobuf), ("grpcio", grpc)):
        assert versions
        newest = max(tuple(map(int, version.split("."))) for version in versions)
        assert requirement(name) >= newest


def test_client_and_broker_have_one_version() -> None:
    assert headrace_client.__version__ == build_info.VERSION
