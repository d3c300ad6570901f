"""Options that take a time; one place for how times are written."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import click

_AGO: Final = re.compile(r"([1-9][0-9]{0,4})([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def read_instant(text: str) -> datetime:
    """Return a time in UTC: ISO 8601, `now`, or how long ago: 2026-11-16T09:30, 24h, 7d.

    Raises:
        BadParameter: it is none of these.
    """
    now = datetime.now(UTC)
    ago = _AGO.fullmatch(text)
    if ago:
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    if text == "now":
        return now
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        rule = f"{text!r} is neither a time such as 2026-11-16T09:30 nor an age such as 7d"
        raise click.BadParameter(rule) from None
    return given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)


def instant(_: click.Context, __: click.Parameter, text: str | None) -> datetime | None:
    """Read an option's time (callback of click); None where it was not given."""
    return None if text is None else read_instant(text)
