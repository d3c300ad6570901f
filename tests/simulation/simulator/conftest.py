"""Cores with an injected bug, loaded from a patched copy of the source."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace_raftlog.core.raft import RaftCore

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "raftlog" / "headrace_raftlog" / "core"


@pytest.fixture
def mutant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., type]]:
    """Return a function that loads the core with patches applied, interpreted.

    A patch is (module, old, new): `old` must occur exactly once in the module's source. The copy
    has a package name of its own, so that a compiled core is neither used nor disturbed.
    """
    loaded: list[str] = []

    def load(name: str, *patches: tuple[str, str, str]) -> type[RaftCore]:
        package = f"headrace_mutant_{name}"
        folder = tmp_path / package
        folder.mkdir()
        sources = {path.stem: path.read_text() for path in SOURCE.glob("*.py")}
        for module, old, new in patches:
            count = sources[module].count(old)
            assert count == 1, f"{module}.py has {count} times: {old}"
            sources[module] = sources[module].replace(old, new)
        for stem, source in sources.items():
            text = source.replace("headrace_raftlog.core", package)
            (folder / f"{stem}.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        loaded.append(package)
        core_type: type[RaftCore] = importlib.import_module(f"{package}.raft").RaftCore
        return core_type

    yield load
    for name in list(sys.modules):
        if name.split(".")[0] in loaded:
            del sys.modules[name]
