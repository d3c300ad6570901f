"""The audit log: changes with their author, origin, protocol and result.

It is a logger of its own, `headrace.audit`, so that it can be kept apart. What is in it is named
field by field: no value of a secret is ever among them.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from headrace_broker.model.limits import AUDIT_VALUE_CHARACTERS_MAX
from headrace_broker.runtime.security.unproven_log import unproven

DONE: Final = "done"
LOGIN: Final = "login"  # an action, of those who have not proven who they are

LOG: Final = logging.getLogger("headrace.audit")


class Actor(NamedTuple):
    """Originator of a request.

    Attributes:
        user: as logged in, or as it says to be while it is logging in.
        peer: HOST:PORT of the client's end of the connection.
        protocol: "amqp", "http" or "grpc".
        request: id of the request or connection.
    """

    user: str
    peer: str
    protocol: str
    request: str = ""


# Set by gateways for the task in which they serve a request. Without one the broker acts by itself,
# which is not recorded.
ACTOR: Final[ContextVar[Actor | None]] = ContextVar("ACTOR", default=None)


def record(action: str, target: str, outcome: str = DONE, **details: Any) -> None:
    """Write a line, if the audit log is on.

    Args:
        action: what was asked for, a word.
        target: to what, as people name it.
        outcome: DONE, or why not.
        details: more of it, no secrets.
    """
    actor = ACTOR.get()
    if actor is not None:
        record_by(actor, action, target, outcome, **details)


def record_by(actor: Actor, action: str, target: str, outcome: str = DONE, **details: Any) -> None:
    """Write a line about a user; as `record`."""
    fields = {
        "user": actor.user,
        "peer": actor.peer,
        "protocol": actor.protocol,
        "request": actor.request,
        "action": action,
        "target": target,
        "outcome": outcome,
    }
    fields |= details
    shown = {key: _bounded(value) for key, value in fields.items() if value not in ("", None)}
    line = " ".join(f"{key}={quoted(value)}" for key, value in shown.items())
    more = unproven(actor.peer.rpartition(":")[0].strip("[]")) if action == LOGIN else {}
    LOG.info("%s", line, extra={"fields": shown, **more})


def _bounded(value: Any) -> Any:
    if isinstance(value, (int, float)):
        return value
    text = str(value)
    if len(text) <= AUDIT_VALUE_CHARACTERS_MAX:
        return text
    return f"{text[:AUDIT_VALUE_CHARACTERS_MAX]}..."


def quoted(value: Any) -> str:
    """Return a value that ends at the next space and stays on its line."""
    text = str(value)
    if text.isascii() and text.isprintable() and not set(text) & {" ", '"', "=", "\\"}:
        return text
    return '"' + text.encode("unicode_escape").decode().replace('"', '\\"') + '"'
