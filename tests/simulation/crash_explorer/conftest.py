"""Logs with an injected bug, loaded from a patched copy of the source."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace_simulation.crash_explorer.subject import Subject

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "raftlog" / "headrace_raftlog" / "storage"


@pytest.fixture
def mutant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Subject]]:
    """Return a function that loads the log with patches applied, interpreted.

    A patch is (module, old, new): `old` must occur exactly once in the module's source. The copy
    has a package name of its own, so that a compiled log is neither used nor disturbed.
    """
    loaded: list[str] = []

    def load(name: str, *patches: tuple[str, str, str]) -> Subject:
        package = f"headrace_mutant_{name}"
        folder = tmp_path / package
        folder.mkdir()
        paths = {path.stem: path for path in SOURCE.rglob("*.py") if path.stem != "__init__"}
        sources = {stem: path.read_text() for stem, path in paths.items()}
        for module, old, new in patches:
            count = sources[module].count(old)
            assert count == 1, f"{module}.py has {count} times: {old}"
            sources[module] = sources[module].replace(old, new)
        for stem, source in sources.items():
            text = source.replace("headrace_raftlog.storage", package)
            place = folder / paths[stem].relative_to(SOURCE)
            place.parent.mkdir(exist_ok=True)
            place.write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        loaded.append(package)
        return Subject(
            log_type=importlib.import_module(f"{package}.log.shared_log").SharedLog,
            identity_type=importlib.import_module(f"{package}.writing.identity").Identity,
        )

    yield load
    for name in list(sys.modules):
        if name.split(".")[0] in loaded:
            del sys.modules[name]
