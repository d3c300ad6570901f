"""Released builds, made of their commits and installed below build/ for tests that start them.

`python -m e2e.harness.release` unpacks the source of the newest one, and prints where that is.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]
LIST: Final = ROOT / "releases.toml"
CACHE: Final = ROOT / "build" / "releases"
DISTRIBUTIONS: Final = ("./protos", ".")
CONSTRAINTS: Final = "constraints.txt"
# A node of this environment runs this environment's code.
OWN_CODE: Final = """
import sys, headrace_broker, headrace_raftlog, headrace_protos
for module in (headrace_broker, headrace_raftlog, headrace_protos):
    assert module.__path__[0].startswith(sys.prefix), module
"""
GIT: Final = ("git", "-c", "safe.directory=*", "-C", str(ROOT))  # CI may be another user
LARGE_FOLDERS: Final = (":!bench", ":!docs", ":!e2e", ":!tests")  # no build needs these


class HistoryMissingError(Exception):
    """The clone is shallow and has no commit of a release."""


class Release(msgspec.Struct, frozen=True):
    """A released build.

    Attributes:
        commit: its full id.
    """

    version: str
    commit: str

    @property
    def directory(self) -> Path:
        """Its source, wheels and environment; named by the commit, which never changes."""
        return CACHE / self.commit

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return self.directory / "venv" / "bin" / "python"


def releases() -> list[Release]:
    """Return all releases, oldest first."""
    rows = tomllib.loads(LIST.read_text(encoding="utf-8"))["release"]
    return msgspec.convert(rows, list[Release])


def install(release: Release) -> Path:
    """Build a release without compiling it, unless it was before; return its interpreter.

    Raises:
        HistoryMissingError: its commit is not in this clone, which is shallow.
        RuntimeError: a full clone has no such commit, or the build failed.
    """
    directory = release.directory
    directory.mkdir(parents=True, exist_ok=True)
    done = directory / "done"
    with (directory / "lock").open("w") as lock:  # tests run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            _build(release)
            done.touch()
    return release.python


def unpack(release: Release) -> Path:
    """Return the directory with a release's source; raise as `install` does."""
    directory, source = release.directory, release.directory / "source"
    directory.mkdir(parents=True, exist_ok=True)
    unpacked = directory / "unpacked"
    with (directory / "unpack-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not unpacked.exists():
            check_history(release)
            _unpack(release, source)
            unpacked.touch()
    return source


def check_history(release: Release) -> None:
    """Check that the clone has the commit of a release; raise as `install` does."""
    found = _git("cat-file", "-e", f"{release.commit}^{{commit}}")
    if found.returncode == 0:
        return
    text = f"commit {release.commit} of release {release.version} is not in this clone"
    if _git("rev-parse", "--is-shallow-repository").stdout.strip() == b"true":
        raise HistoryMissingError(f"{text}, which is shallow: `git fetch --unshallow` gets it")
    raise RuntimeError(f"{text}, though it is a full one: {found.stderr.decode().strip()}")


def _build(release: Release) -> None:
    directory, source = release.directory, unpack(release)
    for leftover in ("wheels", "venv"):
        shutil.rmtree(directory / leftover, ignore_errors=True)
    # The tools that build wheels are those of this environment.
    wheel = ("wheel", "--no-build-isolation", "--no-deps", "-w", str(directory / "wheels"))
    _run(*_pip(sys.executable), *wheel, *DISTRIBUTIONS, cwd=source)
    _run(sys.executable, "-m", "venv", str(directory / "venv"))
    wheels = [str(each) for each in sorted((directory / "wheels").glob("*.whl"))]
    _run(*_pip(str(release.python)), "install", "-c", CONSTRAINTS, *wheels, cwd=source)
    _run(str(release.python), "-P", "-c", OWN_CODE)


def _unpack(release: Release, source: Path) -> None:
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    archive = release.directory / "source.tar"
    packed = _git("archive", "-o", str(archive), release.commit, "--", ".", *LARGE_FOLDERS)
    if packed.returncode != 0:
        raise RuntimeError(f"git archive: {packed.stderr.decode()}")
    _run("tar", "-xf", str(archive), "-C", str(source))
    archive.unlink()


def _pip(python: str) -> tuple[str, ...]:
    return (python, "-m", "pip", "--disable-pip-version-check", "--quiet")


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*GIT, *arguments], check=False, capture_output=True)


def _run(*command: str, cwd: Path = ROOT) -> None:
    environment = own_environment() | {"HEADRACE_NO_COMPILE": "1"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def own_environment() -> dict[str, str]:
    """Return the variables for another interpreter, which is not to find this one's modules."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


if __name__ == "__main__":
    print(unpack(releases()[-1]))
