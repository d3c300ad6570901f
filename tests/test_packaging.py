"""Compiled modules and requirements of the wheel."""

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

from headrace_broker.model import build_info

ROOT = Path(__file__).resolve().parent.parent
OWN_PACKAGES = frozenset({"headrace_raftlog", "headrace_broker"})
# Made here, so no version of them is chosen.
OWN_DISTRIBUTIONS = frozenset(
    {"headrace-client", "headrace-pipeline", "headrace-protos", "headrace-sparkdriver"}
)
# What an isolated build knows the types of, besides the standard library.
TYPED_PACKAGES = frozenset({"librt", "mypy_extensions"})


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


def foreign_bases(source: str) -> list[str]:
    """Classes in `source` whose base comes from a package that an isolated build does not know."""
    known = OWN_PACKAGES | TYPED_PACKAGES | set(sys.stdlib_module_names)
    foreign: set[str] = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {
                (alias.asname or alias.name.partition(".")[0], alias.name) for alias in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = {(alias.asname or alias.name, node.module) for alias in node.names}
        else:
            continue
        foreign |= {bound for bound, module in names if module.partition(".")[0] not in known}
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return [
        node.name
        for node in classes
        if any(ast.unparse(base).partition(".")[0] in foreign for base in node.bases)
    ]


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


def test_a_class_on_a_foreign_base_is_found() -> None:
    assert foreign_bases("import msgspec as m\nclass A(m.Struct): pass\nclass B(A): pass\n") == [
        "A"
    ]
    assert foreign_bases("from msgspec import Struct\nclass A(Struct): pass\n") == ["A"]
    assert foreign_bases("import asyncio\nclass A(asyncio.Protocol): pass\n") == []


@pytest.mark.parametrize("name", hot_modules())
def test_compiled_classes_have_bases_that_an_isolated_build_knows(name: str) -> None:
    assert foreign_bases((ROOT / name).read_text(encoding="utf-8")) == []


def test_the_installed_package_is_compiled_unless_told_otherwise() -> None:
    installed = "site-packages" in Path(str(build_info.__file__)).parts
    pure = bool(os.environ.get("HEADRACE_NO_COMPILE"))
    assert build_info.compiled() is (installed and not pure)


def test_no_wheel_holds_the_tools_that_test_the_log() -> None:
    wheels = [project_table()["tool"]["hatch"]["build"]["targets"]["wheel"]]
    for folder in ("client", "pipeline", "protos", "sparkdriver"):
        table = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))
        wheels.append(table["tool"]["hatch"]["build"]["targets"]["wheel"])
    assert "headrace_raftlog" in str(wheels)
    assert "simulation" not in str(wheels)


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
    assert sorted(names - pinned - OWN_DISTRIBUTIONS) == []


def test_the_extra_for_the_client_takes_the_client_that_is_here() -> None:
    table = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text(encoding="utf-8"))
    [extra] = project_table()["project"]["optional-dependencies"]["client"]
    name, _, bound = extra.partition(">=")
    assert name == table["project"]["name"]
    assert build_info.VERSION.startswith(f"{bound}.")  # the client has the same


def test_headers_that_many_c_files_begin_with_are_compiled_once(tmp_path: Path) -> None:
    hook = load_hook()
    includes = '#include "a.h"\n#include "b.h"\n'
    many = [tmp_path / f"{number}.c" for number in range(hook.SHARED_BY)]
    for path in many:
        path.write_text(f"{includes}int x;\n#include <c.h>\n")
    other = tmp_path / "other.c"
    other.write_text("/* its own */\n#include <d.h>\n")
    directory = tmp_path / "headers"
    directory.mkdir()
    compiled: list[dict[str, Any]] = []

    def compile_plain(sources: list[str], **flags: Any) -> list[str]:
        compiled.append(flags)
        made = directory / "made.o"
        made.write_text(Path(*sources).read_text())
        return [str(made)]

    shared = hook.SharedHeaders(compile_plain, list(map(str, [*many, other])), directory)
    plain = {"extra_postargs": ["-O3"], "depends": ["a.h"]}
    used = [shared.use(str(path), plain)["extra_postargs"] for path in many]
    assert used == [["-O3", "-include", str(directory / "0.c")]] * len(many)
    assert (directory / "0.c.gch").read_text() == (directory / "0.c").read_text() == includes
    assert [each["extra_preargs"] for each in compiled] == [["-x", "c-header"]]
    assert shared.use(str(other), plain) == plain
    assert shared.use(str(many[0]), {"extra_postargs": []})["extra_postargs"][1] != used[0][2]
    assert len(compiled) == 2
