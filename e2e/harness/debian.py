"""Programs out of Debian's packages, without installing them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).parents[2] / "build" / "debian"
SECONDS_MAX: Final = 300  # a slow network


class NotToBeHadError(Exception):
    """A package cannot be downloaded or unpacked here; the text says why."""


def program(package: str, path: str) -> Path:
    """Return a program that is installed, or else one out of its package, below build/.

    Args:
        package: name of the Debian package.
        path: of the program in it.

    Raises:
        NotToBeHadError: this is no Debian, or there is no network.
    """
    installed = shutil.which(Path(path).name)
    if installed is not None:
        return Path(installed)
    folder = CACHE / package
    if not folder.exists():
        for tool in ("apt-get", "dpkg-deb"):
            if shutil.which(tool) is None:
                raise NotToBeHadError(f"there is no {tool}")
        fresh = CACHE / f"{package}.fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        _run(["apt-get", "download", package], fresh)
        archives = list(fresh.glob("*.deb"))
        assert len(archives) == 1, archives
        _run(["dpkg-deb", "-x", archives[0].name, "."], fresh)
        archives[0].unlink()
        fresh.replace(folder)
    return folder / path


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        raise NotToBeHadError(f"{' '.join(command)} takes longer than {SECONDS_MAX} s") from None
    if done.returncode != 0:
        raise NotToBeHadError(f"{' '.join(command)} failed: {done.stderr[-500:]}")
