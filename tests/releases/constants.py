"""Constants that influence replicated state: those of the modules that apply log entries.

Two nodes that apply one entry with two values of such a constant have two states. What is read
here is what `apply` of the queue machine and of the catalog can reach by imports.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "broker"
APPLYING: Final = (
    "headrace_broker.core.queue.machine.queue_machine",
    "headrace_broker.catalog.machine",
)
# The leader makes settings of arguments and policies, and proposes them to all replicas.
PROPOSING: Final = "headrace_broker.runtime.replica.queue_settings"
# Sizes of structures in memory, which no snapshot shows.
LOCAL: Final = frozenset({"_SLACK", "_SPARE_LANES", "_LOOK_FIRST", "_RUN_MIN"})
BROKER: Final = "headrace_broker"
LIMITS: Final = "headrace_broker.model.limits"


def path_of(module: str) -> Path | None:
    """Return the source of a module of the broker, None for other packages."""
    base = SOURCE / module.replace(".", "/")
    found = [each for each in (base.with_suffix(".py"), base / "__init__.py") if each.exists()]
    return found[0] if found else None


def imports_of(path: Path) -> dict[str, list[str]]:
    """Return the modules that a module imports, and the names it takes from each."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for each in node.names:
                found.setdefault(each.name, [])
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [each.name for each in node.names]
            found.setdefault(node.module, []).extend(names)
            for name in names:
                found.setdefault(f"{node.module}.{name}", [])
    return found


def applying_modules() -> dict[str, dict[str, list[str]]]:
    """Return all modules that applying an entry may reach, with what each imports."""
    found: dict[str, dict[str, list[str]]] = {}
    waiting = list(APPLYING)
    while waiting:
        module = waiting.pop()
        path = path_of(module)
        if path is None or module in found or module == LIMITS:
            continue
        found[module] = imports_of(path)
        waiting += found[module]
    return found


def limits() -> dict[str, int | float]:
    """Return the limits that applying modules, and the leader's settings, are made of."""
    names = {name for uses in applying_modules().values() for name in uses.get(LIMITS, [])}
    path = path_of(PROPOSING)
    assert path is not None
    names.update(imports_of(path).get(LIMITS, []))
    module = importlib.import_module(LIMITS)
    return {name: getattr(module, name) for name in sorted(names)}


def own_constants() -> dict[str, int | str]:
    """Return the numbers and bytes (as hex) that applying modules define, "module.NAME" -> value.

    Those that name a version rise with it, and are left out.
    """
    found: dict[str, int | str] = {}
    for module in sorted(applying_modules()):
        if module.startswith(f"{BROKER}.model.") or module.endswith(".version"):
            continue
        path = path_of(module)
        assert path is not None
        loaded = importlib.import_module(module)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
                value = getattr(loaded, name)
                if "VERSION" in name or name in LOCAL or not isinstance(value, int | bytes):
                    continue
                key = f"{module.removeprefix(BROKER + '.')}.{name}"
                found[key] = value.hex() if isinstance(value, bytes) else value
    return found
