"""The load generator overload.c: its arguments, and its output."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from peers import PeerError

SOURCE: Final = Path(__file__).parent.parent / "overload.c"
OPENING_SECONDS_MAX: Final = 300  # until hundreds of connections are open at a broker that is busy
MESSAGE_OVERHEAD_BYTES: Final = 41  # besides a body, as a node reckons it, with names as here


class Group(NamedTuple):
    """Connections that do the same.

    Attributes:
        name: in the figures.
        connections: how many.
        publish: prefix of the queues they publish to, empty for none.
        consume: prefix of the queues they consume from, empty for none.
        queues: how many queues of that prefix.
        window: unconfirmed publishes of each connection; 0 publishes without confirms.
        rate: publishes per second of all together, 0 for as many as go.
        size: bytes of a body.
        prefetch: of each consumer.
        ack: a consumer acknowledges every so many.
        delay_us: a consumer's work for each message, in microseconds.
    """

    name: str
    connections: int = 1
    publish: str = ""
    consume: str = ""
    queues: int = 1
    window: int = 0
    rate: float = 0
    size: int = 100
    prefetch: int = 1000
    ack: int = 100
    delay_us: int = 0

    def text(self) -> str:
        """Return what the generator takes."""
        return ",".join(f"{key}={value}" for key, value in self._asdict().items() if value != "")


class Times(NamedTuple):
    """Seconds of a run: until it is steady, measured, and until the rest has gone."""

    warmup: int
    seconds: int
    drain: int


class GroupFigures(NamedTuple):
    """Figures of a group during the measurement; counts are of the whole run.

    Attributes:
        sent_s: publishes per second that its connections took.
        confirmed_s: confirms per second.
        received_s: messages per second that its consumers were done with.
        e2e_ms: p50 and p99 of the time from publish to delivery.
        confirm_ms: p50 and p99 of the time from publish to confirm.
        received: messages.
        disconnected: connections that the broker ended or that broke.
        refused: connections that could not be opened.
        blocked: `connection.blocked` heard.
    """

    sent_s: float
    confirmed_s: float
    received_s: float
    e2e_ms: tuple[float, float]
    confirm_ms: tuple[float, float]
    sent: int
    confirmed: int
    received: int
    disconnected: int
    refused: int
    blocked: int


def median_figures(runs: Sequence[GroupFigures]) -> GroupFigures:
    """Return the median of each figure of an odd number of runs, which one of them had."""
    middles = [
        tuple(map(statistics.median, zip(*column, strict=True)))
        if isinstance(column[0], tuple)
        else statistics.median(column)
        for column in zip(*runs, strict=True)
    ]
    return GroupFigures._make(middles)


def steady_rate(each_second: Sequence[int], times: Times) -> float:
    """Return the mean rate of the measured seconds."""
    measured = each_second[times.warmup : times.warmup + times.seconds]
    return statistics.fmean(measured)


def parse_figures(text: str, times: Times) -> dict[str, GroupFigures]:
    """Return the figures of each group from what the generator printed."""
    printed: dict[str, Any] = json.loads(text)
    return {name: _group(figures, times) for name, figures in printed["groups"].items()}


def _group(figures: dict[str, Any], times: Times) -> GroupFigures:
    return GroupFigures(
        steady_rate(figures["sent_each"], times),
        steady_rate(figures["confirmed_each"], times),
        steady_rate(figures["received_each"], times),
        (figures["e2e_ms_p50"], figures["e2e_ms_p99"]),
        (figures["confirm_ms_p50"], figures["confirm_ms_p99"]),
        figures["sent"],
        figures["confirmed"],
        figures["received"],
        figures["disconnected"],
        figures["refused"],
        figures["blocked"],
    )


def build(directory: Path) -> Path:
    """Compile the generator and return the program.

    Raises:
        PeerError: the compiler failed.
    """
    program = directory / "overload"
    command = ["cc", "-O2", "-o", str(program), str(SOURCE), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise PeerError(f"cannot build {SOURCE.name}:\n{done.stderr}")
    return program


def load(
    program: Path, ports: Sequence[int], groups: Sequence[Group], times: Times
) -> dict[str, GroupFigures]:
    """Load a broker and return the figures of each group.

    Raises:
        PeerError: the load could not be begun, or did not end.
    """
    command = [str(program), "--ports", ",".join(map(str, ports))]
    for name, value in times._asdict().items():
        command += [f"--{name}", str(value)]
    for group in groups:
        command += ["--group", group.text()]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=sum(times) + OPENING_SECONDS_MAX
        )
    except subprocess.TimeoutExpired as late:
        raise PeerError(f"{' '.join(command)} did not end") from late
    if done.returncode != 0:
        raise PeerError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    if done.stderr:
        print(f"  {done.stderr.strip()}", flush=True)
    return parse_figures(done.stdout, times)
