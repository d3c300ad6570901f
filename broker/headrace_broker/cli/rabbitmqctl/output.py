"""Tables as rabbitmqctl prints them: tab-separated with a line of headers, or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click
import msgspec

from headrace_broker.cli.rabbitmqctl.session import EX_USAGE, CommandError, Session
from headrace_broker.cli.session.printable import printable

Column = str | Callable[[Mapping[str, Any]], Any]


class Words(list[str]):
    """Words that stand in a table without quotes."""


def chosen(columns: Mapping[str, Column], names: Sequence[str], default: str) -> list[str]:
    """Return the columns to print; CommandError EX_USAGE for an unknown name."""
    wanted = [name for joined in names for name in joined.split(",") if name] or default.split()
    unknown = [name for name in wanted if name not in columns]
    if unknown:
        raise CommandError(
            f"(argument validation): Info key(s) {', '.join(unknown)} are not supported; "
            f"supported are {', '.join(columns)}",
            EX_USAGE,
        )
    return wanted


def print_rows(
    session: Session,
    rows: Iterable[Mapping[str, Any]],  # objects of the API
    columns: Mapping[str, Column],
    names: Sequence[str],  # which ones to print, in order
) -> None:
    """Print rows of the API."""
    table = [[_cell(row, columns[name]) for name in names] for row in rows]
    if session.settings.formatter == "json":
        objects = [msgspec.json.encode(dict(zip(names, row, strict=True))) for row in table]
        lines = [f"{',' if index else ''}{each.decode()}" for index, each in enumerate(objects)]
        click.echo("\n".join(["[", *lines, "]"]))
        return
    if table and session.settings.headers:
        click.echo("\t".join(names))
    for row in table:
        click.echo("\t".join(printable(shown(value)) for value in row))


def _cell(row: Mapping[str, Any], column: Column) -> Any:
    return row.get(column) if isinstance(column, str) else column(row)


def shown(value: object) -> str:
    """Return a value as it stands in a table: lists and tables as Erlang terms, as scripts know."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, Words):
        return f"[{', '.join(value)}]"
    return term(value)


def term(value: object) -> str:
    """Return a value within a list or table."""
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, Mapping):
        return "[" + ",".join(f"{{{term(key)},{term(each)}}}" for key, each in value.items()) + "]"
    if isinstance(value, list | tuple):
        return "[" + ",".join(term(each) for each in value) + "]"
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
