"""A released build beside the head, in one process: its modules bear other names.

Where the head's packages are compiled, those of the release are not. Messages of gRPC are those of
the head for both, as two definitions of one message cannot be in a process.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
import tempfile
from pathlib import Path
from typing import Final, cast

from headrace_simulation.cluster import disk, software
from headrace_simulation.cluster.software import Software

PACKAGES: Final = ("raftlog/headrace_raftlog", "broker/headrace_broker")
# Modules that use these.
OWN: Final = ("software", "clients", "leases", "backups", "administration")
_NAMES: Final = re.compile(r"\bheadrace_(broker|raftlog)\b")
_OWN_NAMES: Final = re.compile(rf"\bheadrace_simulation\.cluster\.({'|'.join(OWN)})\b")


def load(source: Path) -> Software:
    """Import the build whose source is in a directory.

    Its renamed copy stands beside that, one for each state of the modules in OWN.
    """
    suffix = f"_{source.parent.name[:8]}"
    own = {f"{name}.py": _own(name, suffix) for name in OWN}
    digest = hashlib.sha256("".join(own.values()).encode()).hexdigest()[:12]
    copy = source.with_name(f"simulated-{digest}")
    if not copy.exists():
        _make(source, copy, suffix, own)
    sys.path.insert(0, str(copy))
    disk.install(importlib.import_module(f"headrace_raftlog{suffix}.storage.disk.files").Files)
    module = importlib.import_module(f"headrace_simulation{suffix}.software")
    return cast("Software", module.HEAD)


def _own(name: str, suffix: str) -> str:
    text = Path(software.__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    return _renamed(_OWN_NAMES.sub(rf"headrace_simulation{suffix}.\1", text), suffix)


def _make(source: Path, copy: Path, suffix: str, own: dict[str, str]) -> None:
    """Write the copy elsewhere first: other runs may do so now."""
    with tempfile.TemporaryDirectory(dir=copy.parent) as directory:
        made = Path(directory) / "made"
        for package in map(Path, PACKAGES):
            target = made / f"{package.name}{suffix}"
            for path in (source / package).rglob("*.py"):
                text = _renamed(path.read_text(encoding="utf-8"), suffix)
                _write(target / path.relative_to(source / package), text)
        for name, text in own.items():
            _write(made / f"headrace_simulation{suffix}" / name, text)
        try:
            made.rename(copy)
        except OSError:
            if not copy.is_dir():  # else another run was first
                raise


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _renamed(text: str, suffix: str) -> str:
    return _NAMES.sub(rf"headrace_\1{suffix}", text)
