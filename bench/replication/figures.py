"""Figures of a run, and the report they go into."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

RESULTS: Final = Path(__file__).parent.parent / "RESULTS.md"


class Latency(NamedTuple):
    """Duration of one repeated operation: milliseconds."""

    p50_ms: float
    p99_ms: float

    def __str__(self) -> str:
        return f"{self.p50_ms:.2f} / {self.p99_ms:.2f}"


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of the values do not exceed.

    Args:
        ordered: ascending, at least one.
        share: above 0, at most 1.
    """
    rank = -(-len(ordered) * share // 1)
    return ordered[max(int(rank), 1) - 1]


def latency(seconds: Sequence[float]) -> Latency:
    """Return the percentiles of durations; zeros where there is none."""
    if not seconds:
        return Latency(0.0, 0.0)
    ordered = sorted(seconds)
    return Latency(1000 * percentile(ordered, 0.5), 1000 * percentile(ordered, 0.99))


def processor_seconds(pid: int) -> float:
    """Return user and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Return the memory a process has in use."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


AUTOGROUP: Final = Path("/proc/sys/kernel/sched_autogroup_enabled")


def machine() -> str:
    """Return what the figures were measured on, in general terms."""
    kernel = platform.release().split("-")[0]
    autogroup = AUTOGROUP.exists() and AUTOGROUP.read_text().strip() == "1"
    return (
        f"{os.cpu_count()} processors ({platform.machine()}), one disk, Linux {kernel}"
        f"{' with autogroup' if autogroup else ''}, CPython {platform.python_version()}"
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, its first column to the left and the others to the right."""
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def replace_section(name: str, text: str, path: Path = RESULTS) -> None:
    """Replace what stands between the marks `name: begin` and `name: end` of a report.

    Raises:
        ValueError: the report has no such marks; nothing was changed.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, rest = path.read_text().split(begin)
    path.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")
