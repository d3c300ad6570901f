"""The walks in INTERNALS.md: each hop that they name is a function that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| [^|]+ \| (\*raftlog\* )?`([\w/]+\.py)` \| `(\w+)` \|$", re.MULTILINE)


def hops() -> list[tuple[str, str]]:
    """Return the files and functions that the walks name."""
    text = (ROOT / "broker" / "INTERNALS.md").read_text(encoding="utf-8")
    section = text.partition("\n## Walks\n")[2].partition("\n## ")[0]
    places = {"": "broker/headrace_broker", "*raftlog* ": "raftlog/headrace_raftlog"}
    return [(f"{places[where]}/{file}", name) for where, file, name in ROW.findall(section)]


def test_both_walks_are_read() -> None:
    assert len(hops()) == 35


@pytest.mark.parametrize(("file", "name"), hops())
def test_hop_exists(file: str, name: str) -> None:
    found = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
    assert any(isinstance(node, ast.FunctionDef) and node.name == name for node in found)
