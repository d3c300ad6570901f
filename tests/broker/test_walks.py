"""The walks in INTERNALS.md: each hop that they name is a function that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| [^|]+ \| (\*raftlog\* )?`([\w/]+\.py)` \| `(\w+)` \|$", re.MULTILINE)
# What is behind the log comes back to these by listeners that they gave along.
LISTENERS = {"queue_host.py", "publishing.py"}


def section() -> str:
    """Return the text about the walks."""
    text = (ROOT / "broker" / "INTERNALS.md").read_text(encoding="utf-8")
    return text.partition("\n## Walks\n")[2].partition("\n## ")[0]


def hops(text: str) -> list[tuple[str, str]]:
    """Return the files and functions that the walks name."""
    places = {"": "broker/headrace_broker", "*raftlog* ": "raftlog/headrace_raftlog"}
    return [(f"{places[where]}/{file}", name) for where, file, name in ROW.findall(text)]


def test_both_walks_are_read() -> None:
    assert len(hops(section())) == 35


def test_a_publish_goes_back_to_nobody_but_listeners() -> None:
    walk = section().partition("\n### A publish")[2].partition("\n### ")[0]
    files = [Path(file).name for file, _ in hops(walk)]
    stretches = [file for at, file in enumerate(files) if at == 0 or files[at - 1] != file]
    again = {file for file in stretches if stretches.count(file) > 1}
    assert again == LISTENERS


@pytest.mark.parametrize(("file", "name"), hops(section()))
def test_hop_exists(file: str, name: str) -> None:
    found = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
    assert any(isinstance(node, ast.FunctionDef) and node.name == name for node in found)
