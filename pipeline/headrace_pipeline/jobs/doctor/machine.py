"""Checks of this machine: Java, Python's packages, places to write to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from headrace_pipeline.jobs.doctor.check import Check, fail, ok, warn
from headrace_pipeline.limits import DISK_FREE_BYTES, JAVA_ANSWER_SECONDS_MAX

JAVA_LEAST: Final = 17  # Spark 4 needs it
Version = tuple[int, ...]

# From the lower bound up to, and without, the upper one; as in pyproject.toml.
RANGES: Final[dict[str, tuple[Version, Version | None]]] = {
    "pyspark": ((4, 2), (4, 4)),
    "pyarrow": ((20,), None),
    "pandas": ((2, 2), (3,)),
    "numpy": ((2, 0), None),
    "deltalake": ((1, 6), None),
}
_JAVA_VERSION: Final = re.compile(r'version "(\d+)')
_ADVICE_JAVA: Final = (
    f"install a Java runtime of version {JAVA_LEAST} or 21 (Debian: openjdk-17-jre-headless), and "
    "let JAVA_HOME point to it where there are several"
)


def check_java(environment: Mapping[str, str]) -> Check:
    """Check the Java that Spark would start."""
    home = environment.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        return fail("java", "there is none on the PATH, and no JAVA_HOME", _ADVICE_JAVA)
    try:
        said = subprocess.run(  # noqa: S603 - what Spark itself would start
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=JAVA_ANSWER_SECONDS_MAX,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        return fail("java", f"{program} does not run: {error}", _ADVICE_JAVA)
    return judge_java(program, said)


def judge_java(program: str, said: str) -> Check:
    """Judge what `java -version` says."""
    found = _JAVA_VERSION.search(said)
    if found is None:
        first = said.strip().partition("\n")[0]
        return warn("java", f"{program} says {first!r}, which is no version", _ADVICE_JAVA)
    if int(found[1]) < JAVA_LEAST:
        return fail("java", f"{program} is version {found[1]}", _ADVICE_JAVA)
    return ok("java", f"version {found[1]} ({program})")


def parse_version(text: str) -> Version:
    """Return the numbers that a version begins with: (4, 3, 0) of "4.3.0.dev1"."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def installed_versions() -> dict[str, str]:
    """Return the versions of packages in RANGES that this Python has."""
    found = {}
    for name in RANGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def check_packages(versions: Mapping[str, str], where: str = "") -> list[Check]:
    """Judge versions of packages.

    Args:
        versions: by name.
        where: the Python that has them, such as "of workers", for people.
    """
    return [_check_package(name, versions.get(name), where) for name in RANGES]


def _check_package(name: str, version: str | None, where: str) -> Check:
    least, below = RANGES[name]
    wanted = f"{name}>={_text(least)}" + (f",<{_text(below)}" if below else "")
    title = f"{name} {where}".strip()
    if version is None:
        return fail(title, "is not installed", f"pip install '{wanted}'")
    numbers = parse_version(version)
    if numbers < least or (below is not None and numbers >= below):
        return fail(title, f"is {version}", f"pip install '{wanted}'")
    return ok(title, version)


def _text(version: Version) -> str:
    return ".".join(map(str, version))


def check_place(name: str, place: str) -> Check:
    """Check whether files can be written somewhere, and how many bytes are free there.

    Args:
        name: what it is for, such as "table".
        place: a path or a file URL; of other URLs nothing is known before they are written to.
    """
    scheme, separator, rest = place.partition("://")
    if separator and scheme != "file":
        says = f"{place} is in an object store, which is not tried here"
        return warn(name, says, "look at what the first batch of the job says")
    path = Path(rest if separator else place).expanduser().absolute()
    there = next(each for each in (path, *path.parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        advice = f"let the user of this process (uid {os.geteuid()}) write there, or take another"
        return fail(name, f"{there} is not writable", advice)
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".headrace-doctor-"):
            pass
    except OSError as error:
        return fail(name, f"{there} cannot be written to: {error.strerror}", "take another place")
    free = shutil.disk_usage(there).free
    says = f"{path} can be written to, {free / 2**30:.1f} GiB free"
    if free < DISK_FREE_BYTES:
        return warn(name, says, "make room: a full disk stops the job in the middle of a batch")
    return ok(name, says)
