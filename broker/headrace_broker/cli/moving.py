"""Waits until replicas of queues are where they are to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace_broker.cli.session.api_client import path_of
from headrace_broker.cli.session.progress import Gauge, gauge, poll
from headrace_broker.cli.session.session import (
    EXIT_NOT_FOUND,
    EXIT_UNAVAILABLE,
    CommandError,
    Row,
    Session,
)


class Move(NamedTuple):
    """Planned move of a queue's replicas."""

    vhost: str  # of the queue
    name: str  # of the queue
    node: str  # on which it is to have a replica, or none
    present: bool  # which of both

    def is_done(self, rows: Sequence[Row]) -> bool:
        """Return whether that is so, and no other replica is on its way, whoever answers."""
        if any(row["role"] != "voter" or not row["wanted"] for row in rows):
            return False
        return any(row["node"] == self.node for row in rows) is self.present


def wait_for_one(session: Session, move: Move, seconds: float) -> None:
    """Wait for one queue; CommandError where it takes too long, or the queue is gone."""
    state = "its leader has not answered"
    with gauge(f"waiting for the replicas of queue '{move.name}'", session.as_json) as shown:

        def is_so() -> bool:
            nonlocal state
            rows = _members(session, move)
            if rows is None:
                return False
            state = _tell(shown, rows)
            return move.is_done(rows)

        if poll(is_so, seconds):
            return
    raise CommandError(f"queue '{move.name}' is not settled after {seconds:g} s: {state}")


def wait_for_all(session: Session, moves: Sequence[Move], seconds: float) -> None:
    """Wait for many queues, but deleted ones; CommandError where it takes too long."""
    left = list(moves)
    with gauge("replicas move", session.as_json) as shown:

        def is_so() -> bool:
            for move in list(left):
                if _is_over(session, move):
                    left.remove(move)
                    shown.show(f"{len(left)} of {len(moves)} queues are not settled")
                    shown.reach(len(moves) - len(left), len(moves))
            return not left

        if poll(is_so, seconds):
            return
    raise CommandError(f"{len(left)} of {len(moves)} queues are not settled after {seconds:g} s")


def _is_over(session: Session, move: Move) -> bool:
    try:
        rows = _members(session, move)
    except CommandError as error:
        if error.exit_code == EXIT_NOT_FOUND:
            return True
        raise
    return rows is not None and move.is_done(rows)


def _members(session: Session, move: Move) -> list[Row] | None:
    """Return a queue's replicas; None while nobody knows, for leadership may move with one."""
    try:
        found = session.get(path_of("queues", move.vhost, move.name, "members"))
    except CommandError as error:
        if error.exit_code == EXIT_UNAVAILABLE:
            return None
        raise
    rows: list[Row] = found["members"]
    return rows


def _tell(shown: Gauge, rows: Sequence[Row]) -> str:
    """Show which replicas are on their way, and return that."""
    moving = [row for row in rows if row["role"] != "voter"]
    told = [f"{row['node']} is {row['role']}" for row in moving]
    text = ", ".join(told) or "all replicas vote"
    shown.show(text)
    lags = [row["lag"] for row in moving if row["lag"] is not None]
    if lags:
        shown.remain(max(lags))
    return text
