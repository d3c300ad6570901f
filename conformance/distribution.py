"""Source distributions and the environment that their tests run in, below the cache folder."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from conformance.recipe import Recipes, Suite

OWN: Final = Path(__file__).parent
INSTALL_SECONDS_MAX: Final = 1200  # a slow network, and clients that are built from source
PIP: Final = ("-m", "pip", "--disable-pip-version-check", "--quiet")


class DistributionError(Exception):
    """A distribution could not be had or installed; the text says what pip said."""


def run(command: list[str]) -> None:
    """Run a command to its end.

    Raises:
        DistributionError: it failed; its output is the text.
    """
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False
    )
    if done.returncode != 0:
        raise DistributionError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def fetch(suite: Suite, cache: Path) -> Path:
    """Return the archive of a suite's distribution, downloading it unless it is there."""
    folder = cache / "archives" / f"{suite.name}-{suite.version}"
    if not folder.exists():
        fresh = folder.with_name(folder.name + ".fresh")
        shutil.rmtree(fresh, ignore_errors=True)
        # --no-binary for this one only: what builds it may come as a wheel.
        only_source = ["--no-deps", "--no-binary", suite.name, suite.requirement]
        run([sys.executable, *PIP, "download", "--dest", str(fresh), *only_source])
        fresh.replace(folder)
    (archive,) = folder.glob("*.tar.gz")
    return archive


def unpack(suite: Suite, cache: Path) -> Path:
    """Return a fresh folder of a suite's sources; tests leave things behind.

    Raises:
        DistributionError: they could not be had.
    """
    place = cache / "sources" / suite.name
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    # A suite without settings of its own must not find ours, in a folder above it.
    settings = place.parent / "pytest.ini"
    if not settings.exists():  # a suite beside this one may be reading it
        settings.write_text("[pytest]\n", encoding="utf-8")
    if suite.folder:
        shutil.copytree(OWN / suite.folder, place)
        if suite.runner == "node":
            run(["npm", "ci", "--no-audit", "--no-fund", "--silent", "--prefix", str(place)])
        return place
    place.mkdir(parents=True)
    with tarfile.open(fetch(suite, cache)) as archive:
        archive.extractall(place, filter="data")
    (folder,) = place.iterdir()
    return folder


def environment(recipes: Recipes, cache: Path) -> Path:
    """Return the interpreter of an environment with all clients and what their tests need."""
    place = cache / "venv"
    clients = [suite for suite in recipes.suite if suite.version]
    wanted = [*recipes.requirements, *(suite.requirement for suite in clients)]
    digest = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()
    stamp = place / "stamp"
    python = place / "bin" / "python"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return python
    archives = [str(fetch(suite, cache)) for suite in clients]
    run([sys.executable, "-m", "venv", "--clear", str(place)])
    run([str(python), *PIP, "install", *recipes.requirements, *archives])
    stamp.write_text(digest, encoding="utf-8")
    return python
