"""The house rules that can be counted: module and function length, names, docstrings, layout."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "protos",
    "raftlog",
    "broker",
    "client",
    "operator",
    "pipeline",
    "simulation",
    "sparkdriver",
    "tests",
    "e2e",
    "bench",
    "conformance",
)
PRODUCT = ("raftlog", "broker", "client", "operator", "pipeline")
PRODUCT_LINES_MAX = 145_800  # docs/decisions/0029-the-size-of-the-product-is-bounded.md
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
# A docstring names the thing or says what the call does. One that opens so is a riddle.
RIDDLE = re.compile(
    r"(What|Have|Who|Whom|Whose|Whoever|Whatever|How|Whether|Why|Where|Nobody|Somebody|That|Those)\b"
)
RIDDLES_ANYWHERE = re.compile(r"\b(is|are) not looked at\b|\b(has|have) it that\b|[Nn]obody's\b")
FORBIDDEN_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "manager"})

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def project_modules() -> list[Path]:
    """Every hand-written module below the component folders."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return sorted(
        path
        for path in [*found, ROOT / "hatch_build.py"]
        if not {"node_modules", "__pycache__"} & set(path.parts)
    )


@lru_cache(maxsize=1)
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    """All nodes of `source`, parsed once for all rules."""
    return tuple(ast.walk(ast.parse(source)))


def functions(source: str) -> Iterator[FunctionNode]:
    """Every function and method in `source`, nested ones too."""
    for node in nodes_of(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def function_lines(node: FunctionNode) -> int:
    """Lines from `def` to the end of the body; decorators do not count."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def long_functions(source: str) -> list[str]:
    """`name (lines)` of the functions in `source` that are too long."""
    lengths = [(node.name, function_lines(node)) for node in functions(source)]
    return [f"{name} ({count})" for name, count in lengths if count > FUNCTION_LINES_MAX]


def riddles(source: str) -> list[str]:
    """Opening lines of the docstrings in `source` that do not say plainly what a thing is."""
    found = []
    for node in nodes_of(source):
        if isinstance(node, ast.Module | ast.ClassDef | FunctionNode):
            text = ast.get_docstring(node) or ""
            if RIDDLE.match(text) or RIDDLES_ANYWHERE.search(text):
                found.append(text.partition("\n")[0])
    return found


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_component_folders_are_looked_at() -> None:
    modules = {relative(path) for path in project_modules()}
    assert "raftlog/headrace_raftlog/model/entry.py" in modules
    assert "broker/headrace_broker/model/message.py" in modules
    assert "tests/test_tidy.py" in modules


def test_a_function_of_71_lines_is_found() -> None:
    body = "    x = 1\n"
    assert long_functions("def f():\n" + body * 69) == []
    assert long_functions("def f():\n" + body * 70) == ["f (71)"]
    assert long_functions("class C:\n  async def g(self):\n" + body * 70) == ["g (71)"]


def test_riddles_are_found() -> None:
    plain = (
        '"""Limits of a node."""\ndef f():\n    """Return what is left.\n\n    Whole.\n    """\n'
    )
    assert riddles(plain) == []
    assert riddles('class C:\n    """What is left.\n\n    More.\n    """\n') == ["What is left."]
    assert riddles('"""Have a limit set."""\n') == ["Have a limit set."]
    assert riddles('"""Limits.\n\nIt is nobody\'s.\n"""\n') == ["Limits."]


def test_product_is_bounded() -> None:
    counts = dict.fromkeys(PRODUCT, 0)
    for path in project_modules():
        folder = path.relative_to(ROOT).parts[0]
        if folder in counts:
            counts[folder] += len(path.read_text(encoding="utf-8").splitlines())
    assert all(counts.values()), counts
    assert sum(counts.values()) <= PRODUCT_LINES_MAX, counts


@pytest.mark.parametrize("path", project_modules(), ids=relative)
def test_module_is_short(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    lines = len(source.splitlines())
    assert lines <= MODULE_LINES_MAX, f"{relative(path)} has {lines} lines"
    assert long_functions(source) == []
    assert riddles(source) == []


def test_module_names_say_what_is_inside() -> None:
    assert [relative(p) for p in project_modules() if p.stem in FORBIDDEN_NAMES] == []


@pytest.mark.parametrize(
    "folder", ["tests", "operator", "raftlog", "broker", "pipeline", "simulation", "sparkdriver"]
)
def test_no_init_file_shadows_the_standard_library_or_makes_tests_a_package(folder: str) -> None:
    """A component folder is a source root; `operator/__init__.py` would hide the real operator."""
    pattern = "**/__init__.py" if folder == "tests" else "__init__.py"
    assert [relative(path) for path in (ROOT / folder).glob(pattern)] == []


def test_the_source_tree_holds_no_extension_modules() -> None:
    found = [path for folder in ("raftlog", "broker") for path in (ROOT / folder).rglob("*.so")]
    assert [relative(path) for path in found] == []
