"""Figures and names as sentences for people have them."""

from __future__ import annotations

from typing import Final

from headrace_broker.model.flow import CONNECTION, STREAM

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def size(count: int) -> str:
    """Return "512 B", "1.5 KiB", "64 MiB"."""
    if count < 1024:
        return f"{count} B"
    amount, steps = count / 1024, 0
    while amount >= 1024 and steps < len(_UNITS) - 1:
        amount /= 1024
        steps += 1
    unit = _UNITS[steps]
    if amount >= 9.95 or amount == int(amount):
        return f"{round(amount):,} {unit}"
    return f"{amount:.1f} {unit}"


def rate(per_second: float) -> str:
    """Return "120/s", and "0.4/s" where that says more."""
    if 0 < per_second < 9.95:
        return f"{per_second:.1f}/s"
    return f"{round(per_second):,}/s"


def percent(share: float) -> str:
    """Return "83 %"."""
    if 0 < share < 0.01:
        return "less than 1 %"
    return f"{min(round(share * 100), 100)} %"


def messages(count: int) -> str:
    """Return "1 message", "1,000 messages"."""
    return f"{count:,} message{'' if count == 1 else 's'}"


def duration(milliseconds: int) -> str:
    """Return "0.4 s", "12 s", "3 min"."""
    if milliseconds < 9_950:
        return f"{milliseconds / 1000:.1f} s"
    if milliseconds < 120_000:
        return f"{round(milliseconds / 1000)} s"
    return f"{milliseconds // 60_000:,} min"


def peer(name: str) -> str:
    """Return the client's end of a connection's name."""
    return name.partition(" -> ")[0]


def client(name: str, client_name: str, *more: str) -> str:
    """Describe a connection: its name, its origin, and more of it."""
    known = [each for each in (client_name, peer(name), *more) if each]
    return f"{known[0]} ({', '.join(known[1:])})" if len(known) > 1 else known[0]


def origin(kind: str, name: str, client_name: str, node: str, user: str) -> str:
    """Return who an account belongs to."""
    if kind in (CONNECTION, STREAM):
        if not name:
            return "another user's connection"
        return client(name, client_name, f"user {user}" if user else "")
    if kind == "unknown":
        return "not known"
    what = {"expiry": "messages that expire", "dead-letters": "dead letters"}
    what |= {"replay": "a replay", "republish": "messages that are moved"}
    what["others"] = "further clients"
    return f"{what.get(kind, kind)} on {node}"
