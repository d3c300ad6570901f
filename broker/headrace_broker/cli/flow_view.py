"""Flow control as text: what the API's objects look like in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace_broker.cli.session.session import markup
from headrace_broker.flow import wording
from headrace_broker.flow.backlog import UNKNOWN

WIDE_COLUMNS_MIN: Final = 100  # from here there is room for what waits
COLOURS: Final = {"flow": "yellow", "blocking": "yellow", "blocked": "red", "running": "green"}

Row = Mapping[str, Any]


def connections_table(rows: Iterable[Row], width: int) -> Table:
    """Return connections, rows of GET /api/flow/connections, with what stops them."""
    wide = width >= WIDE_COLUMNS_MIN
    table = Table(box=None, padding=(0, 1, 0, 0), collapse_padding=True, show_edge=False)
    table.add_column("connection", no_wrap=True, overflow="ellipsis", min_width=12)
    table.add_column("user", no_wrap=True, overflow="ellipsis", max_width=12 if wide else 8)
    table.add_column("node", no_wrap=True, overflow="ellipsis", max_width=16 if wide else 6)
    table.add_column("state", no_wrap=True)
    table.add_column("limit", no_wrap=True)
    table.add_column("queue", no_wrap=True, overflow="ellipsis", min_width=6)
    for title in ("1s %", "10s %", "60s %"):
        table.add_column(title, justify="right", no_wrap=True)
    if wide:
        table.add_column("held", justify="right", no_wrap=True)
        table.add_column("owes", justify="right", no_wrap=True)
    for row in rows:
        limit, queue = _binding(row)
        cells = [
            markup(_name(row)),
            markup(row["user"]),
            markup(row["node"]),
            f"[{COLOURS.get(row['state'], 'default')}]{row['state']}[/]",
            limit,
            markup(queue),
            *(_percent(share) for share in row["flow"]["stopped"].values()),
        ]
        if wide:
            cells += [wording.size(row["buffered_bytes"]), wording.size(row["owed_bytes"])]
        table.add_row(*cells)
    return table


def summary(rows: Iterable[Row]) -> str:
    """Return how many of the connections are in which state."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["state"]] = counts.get(row["state"], 0) + 1
    states = [state for state in ("blocked", "blocking", "flow", "running") if state in counts]
    return ", ".join(f"{counts[state]} {state}" for state in states) or "no connections"


def explanation_view(found: Row) -> RenderableType:
    """Return an answer of GET /api/flow/why, without its sentence."""
    parts: list[RenderableType] = []
    facts = Table(box=None, padding=(0, 2, 0, 0), show_header=False, show_edge=False)
    facts.add_column(no_wrap=True)
    facts.add_column()
    colour = COLOURS.get(found["state"], "default")
    limit = f", limit {found['limit']}" if found["limit"] else ""
    facts.add_row("state", f"[{colour}]{found['state']}[/]{limit}")
    for name, shares in found["by_limit"].items():
        facts.add_row("stopped", f"{name}: {_times(shares)}")
    if found["hint"]:
        facts.add_row("next", markup(found["hint"]))
    if found["missing"]:
        facts.add_row("lacks", markup(f"no answer from {', '.join(found['missing'])}"))
    parts.append(facts)
    if found["causes"]:
        filled = found.get("shares_of") == "backlog"
        title = "who brings the load" if found["limit"] else "what comes in"
        title = "who has filled the queue" if filled else title
        parts += ["", Text(title), causes_table(found["causes"], filled)]
    if found["held"]:
        parts += ["", Text("whom it stops"), connections_table(found["held"], WIDE_COLUMNS_MIN)]
    return Group(*parts)


def causes_table(causes: Iterable[Row], filled: bool = False) -> Table:
    """Return causes of GET /api/flow/why, heaviest first; `filled` if they fill the queue."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("who", overflow="fold")
    table.add_column("node", no_wrap=True)
    table.add_column("queue", overflow="fold")
    if filled:
        table.add_column("in the queue", justify="right", no_wrap=True)
    table.add_column("owes", justify="right", no_wrap=True)
    table.add_column("brings", justify="right", no_wrap=True)
    for cause in causes:
        names = ("name", "user_provided_name", "node", "user")
        who = wording.origin(cause["kind"], *(cause.get(name) or "" for name in names))
        if cause.get("gone"):
            who += ", gone"
        cells = [wording.percent(cause["share"]), markup(who)]
        cells += [markup(cause["node"] or ""), markup(cause["queue"])]
        if filled:
            cells.append(_amount(cause["queued_messages"], cause["queued_bytes"]))
        cells += ["", ""] if cause["kind"] == UNKNOWN else _owes(cause)
        table.add_row(*cells)
    return table


def _owes(cause: Row) -> list[str]:
    bytes_text = wording.size(round(cause["byte_rate"]))
    owed = _amount(cause["messages"], cause["byte_count"])
    return [owed, f"{wording.rate(cause['message_rate'])}, {bytes_text}/s"]


def _amount(messages: int, byte_count: int) -> str:
    return f"{wording.messages(messages)}, {wording.size(byte_count)}"


def limits_table(rows: Iterable[Row]) -> Table:
    """Return limits: rows of GET /api/flow/limits."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("limit", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("source", no_wrap=True)
    table.add_column("default", justify="right", no_wrap=True)
    table.add_column("what it bounds", overflow="fold")
    for row in rows:
        table.add_row(
            row["name"],
            _value(row["value"]),
            row.get("unit", ""),
            row.get("source", ""),
            _value(row["default"]),
            markup(row.get("description", "")),
        )
    return table


def advice_table(rows: Iterable[Row]) -> Table:
    """Return advice: rows of GET /api/flow/advice."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("vhost", overflow="fold")
    table.add_column("queue", overflow="fold")
    table.add_column("what", no_wrap=True)
    table.add_column("now", justify="right", no_wrap=True)
    table.add_column("advised", justify="right", no_wrap=True)
    table.add_column("valid until", no_wrap=True)
    table.add_column("by", overflow="fold")
    table.add_column("because", overflow="fold")
    for row in rows:
        until = datetime.fromtimestamp(row["valid_until_ms"] / 1000, UTC)
        table.add_row(
            markup(row["vhost"]),
            markup(row["queue"]),
            row["kind"],
            str(row["current"]),
            str(row["value"]),
            f"{until:%Y-%m-%d %H:%M:%S}Z",
            markup(row["author"]),
            markup(row["reason"]),
        )
    return table


def _binding(row: Row) -> tuple[str, str]:
    """Return the limit to show, and its queue: that of now, or what took most of the last 10 s."""
    flow = row["flow"]
    by_limit: Mapping[str, Row] = flow["by_limit"]
    most = max(by_limit, key=lambda name: by_limit[name]["last_10s"], default="")
    limit = flow["limit"] or most
    if most and by_limit[most]["last_10s"] > 0:
        limit = most
    queue = by_limit[limit]["queue"] if limit in by_limit else flow["queue"]
    return limit, queue or ""


def _name(row: Row) -> str:
    name = wording.peer(row["name"])
    own = row["user_provided_name"]
    return f"{name} {own}" if own else name


def _percent(share: float) -> str:
    return f"{share * 100:.0f}"


def _times(shares: Mapping[str, float]) -> str:
    names = {"last_1s": "1 s", "last_10s": "10 s", "last_60s": "60 s"}
    told = [f"{wording.percent(shares[key])} of the last {names[key]}" for key in names]
    return ", ".join(told)


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
