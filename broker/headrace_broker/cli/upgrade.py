"""`headrace upgrade`: the cluster version, which ends an upgrade."""

from __future__ import annotations

import click

from headrace_broker.cli.session.api_client import path_of
from headrace_broker.cli.session.session import CommandError, Row, Session, SessionGroup


@click.group(cls=SessionGroup)
def upgrade() -> None:
    """Show and end an upgrade of the cluster to a later release."""


def knows(row: Row) -> str:
    """Return the newest cluster version that a node's release knows, "-" while it is unknown."""
    return "-" if row["known"] is None else str(row["known"])


@upgrade.command()
def status(session: Session) -> None:
    """Show the cluster version, and what the release of each node knows.

    Until the version is raised every node acts like the release before, which can be started again.
    """
    found = session.get(path_of("cluster", "version"))
    session.done(f"cluster version {found['version']}; node asked knows {found['newest']}")
    session.print_rows(found["nodes"], {"name": "name", "knows": knows})
    if found["problem"]:
        session.done(f"cannot be raised: {found['problem']}")
    elif found["version"] < found["newest"]:
        session.done("every node knows it: `headrace upgrade finish` raises it, for good")


@upgrade.command()
def finish(session: Session) -> None:
    """Raise the cluster version: use what all nodes know, for good.

    Nodes of an earlier release cannot take part any more. It is refused, naming the nodes, while
    one runs such a release.
    """
    before = session.get(path_of("cluster", "version"))
    if before["problem"]:
        raise CommandError(str(before["problem"]))
    after = session.request("POST", path_of("cluster", "version", "raise"))
    session.done(f"cluster version {after['version']}")
