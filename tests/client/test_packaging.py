"""The client installs alone: imports, and version."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import headrace_client
from headrace_broker.model import build_info

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "client" / "headrace_client"
NEEDED = {"grpc", "google", "headrace_client", "headrace_protos"}


def imported(path: Path) -> set[str]:
    """Top-level packages that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module.partition(".")[0])
    return found


def test_nothing_but_grpc_protobuf_and_the_protocols_is_imported() -> None:
    modules = list(CLIENT.rglob("*.py"))
    assert len(modules) > 20
    foreign = set().union(*map(imported, modules)) - set(sys.stdlib_module_names)
    assert foreign == NEEDED


def test_client_and_broker_have_one_version() -> None:
    assert headrace_client.__version__ == build_info.VERSION
