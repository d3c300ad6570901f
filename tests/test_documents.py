"""Paths, names and links in the documents beside the code exist in the tree."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = sorted(
    path.name
    for path in ROOT.iterdir()
    if path.is_dir() and path.name[0] != "." and path.name not in {"build", "dist", "data"}
)
DOCUMENTS = (
    *("broker/INTERNALS.md", "raftlog/INTERNALS.md", "raftlog/LOG.md", "pipeline/INTERNALS.md"),
    *("raftlog/README.md", "client/README.md", "pipeline/README.md", "protos/README.md"),
    *("conformance/README.md", "e2e/chaos/README.md", "e2e/kubernetes/README.md"),
    *("README.md", "CONTRIBUTING.md", "docs/decisions/README.md"),
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/decisions/0*.md"))),
)
SOURCES = frozenset({".py", ".proto", ".toml", ".yaml", ".yml", ".js", ".mjs", ".html", ".json"})
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
PATH = re.compile(r"(?:[\w-]+/)*[\w-]+(?:/|\.(?:py|md|toml|proto|json|html))")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
LOOKS_LIKE_CODE = re.compile(r"_|\.|\(\)|[a-z][A-Z]")
# Names of other programs, and of files that a run makes.
FOREIGN = frozenset(
    [
        *("BUILD_BASE", "StackOverflowError", "pushFilters", "retry_timeout"),
        *("_commits/N.json", "node.json", "salvage.json", "history.json"),
        "build/chaos/seed-N-nodes-M/",
    ]
)


@cache
def paths() -> tuple[str, ...]:
    """Return each file and folder of the tree, folders with a `/` behind, all with one before."""
    found = [ROOT / folder for folder in FOLDERS]
    found += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    found += [path for path in ROOT.iterdir() if path.is_file()]
    return tuple(
        f"/{path.relative_to(ROOT)}{'/' if path.is_dir() else ''}"
        for path in found
        if not {"node_modules", "__pycache__"} & set(path.parts)
    )


@cache
def words() -> frozenset[str]:
    """Return the words of all sources and of the list of metrics, and the names of modules."""
    found: set[str] = set()
    for path in paths():
        is_source = Path(path).suffix in SOURCES or path == "/docs/metrics.md"
        if is_source and path != "/tests/test_documents.py":
            found.add(Path(path).stem)
            found.update(re.findall(r"\w+", (ROOT / path[1:]).read_text(encoding="utf-8")))
    return frozenset(found)


def unknown(text: str) -> list[str]:
    """Return the paths and names in code spans of `text` that the tree lacks."""
    found = []
    for span in SPAN.findall(FENCE.sub("", text)):
        if PATH.fullmatch(span):
            known = any(path.endswith(f"/{span}") for path in paths())
        elif NAME.fullmatch(span) and LOOKS_LIKE_CODE.search(span):
            known = set(re.findall(r"\w+", span)) <= words()
        else:
            continue
        if not known and span not in FOREIGN:
            found.append(span)
    return found


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_and_names_exist(document: str) -> None:
    assert unknown((ROOT / document).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document: str) -> None:
    home = (ROOT / document).parent
    links = LINK.findall((ROOT / document).read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (home / link).exists()] == []


def test_unknown_names_are_found() -> None:
    text = "`model/limits.py`, `no/such.py`, `QueueMachine`, `NoSuchName`, `x.no_such()`, `plain`"
    assert unknown(text) == ["no/such.py", "NoSuchName", "x.no_such()"]
