"""What the wheel compiles, and what it needs."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace_broker import build_info

ROOT = Path(__file__).resolve().parent.parent
OWN_PACKAGES = frozenset({"headrace_raftlog", "headrace_broker"})
# What compiled modules may import besides the standard library: mypyc knows the types of these.
COMPILED_IMPORTS = frozenset({"librt", "mypy_extensions"})


def load_hook() -> ModuleType:
    """The build hook, which is no module of any package."""
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def project_table() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def hot_modules() -> list[str]:
    hook = load_hook()
    modules: list[str] = hook.compiled_modules(ROOT, hook.read_options(ROOT))
    return modules


def imported_packages(path: Path) -> set[str]:
    """First names of everything that the module at `path` imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module.partition(".")[0])
    return found


def test_the_hot_parts_are_compiled_and_the_cold_ones_are_not() -> None:
    modules = hot_modules()
    assert "raftlog/headrace_raftlog/model/entry.py" in modules
    assert "broker/headrace_broker/model/message.py" in modules
    assert "broker/headrace_broker/model/definition.py" not in modules
    assert not [name for name in modules if name.endswith("__init__.py")]


def test_the_modules_that_tell_whether_it_is_compiled_are_among_the_compiled() -> None:
    names = {Path(name).with_suffix("").as_posix() for name in hot_modules()}
    for hot in build_info.HOT_MODULES:
        assert any(name.endswith(hot.replace(".", "/")) for name in names), hot


def test_patterns_without_a_file_are_no_error(tmp_path: Path) -> None:
    hook = load_hook()
    (tmp_path / "a").mkdir()
    for name in ("one.py", "two.py", "__init__.py"):
        (tmp_path / "a" / name).touch()
    options = hook.CompileOptions(
        compile=("a/*.py", "gone/*.py", "a/missing.py"),
        interpreted=("**/__init__.py", "a/two.py"),
        opt_level="3",
        multi_file=True,
    )
    assert hook.compiled_modules(tmp_path, options) == ["a/one.py"]


def test_an_unknown_key_of_the_build_table_is_refused(tmp_path: Path) -> None:
    hook = load_hook()
    (tmp_path / "pyproject.toml").write_text(
        "[tool.headrace.build]\ncompile = []\ninterpreted = []\n"
        'opt-level = "3"\nmulti-file = true\nexclude = []\n'
    )
    with pytest.raises(ValueError, match="unknown keys: exclude"):
        hook.read_options(tmp_path)


def test_compiled_modules_import_only_what_an_isolated_build_knows() -> None:
    allowed = OWN_PACKAGES | COMPILED_IMPORTS | set(sys.stdlib_module_names)
    foreign = {name: sorted(imported_packages(ROOT / name) - allowed) for name in hot_modules()}
    assert {name: found for name, found in foreign.items() if found} == {}


def test_the_installed_package_is_compiled_unless_told_otherwise() -> None:
    installed = "site-packages" in Path(str(build_info.__file__)).parts
    pure = bool(os.environ.get("HEADRACE_NO_COMPILE"))
    assert build_info.compiled() is (installed and not pure)


def test_every_dependency_has_a_lower_bound_and_a_reason() -> None:
    project = project_table()["project"]
    extras = project["optional-dependencies"]
    reasons = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for requirement in [*project["dependencies"], *extras["test"], *extras["dev"]]:
        name, bound, _ = requirement.partition(">=")
        assert bound, f"{requirement} has no lower bound"
        assert f"| {name} |" in reasons, f"{name} has no line in CONTRIBUTING.md"


def test_every_dependency_is_pinned_for_ci() -> None:
    project = project_table()["project"]
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(name for extra in extras for name in extra)]
    names = {name.partition(">=")[0].lower().replace("_", "-") for name in wanted}
    assert sorted(names - pinned) == []
