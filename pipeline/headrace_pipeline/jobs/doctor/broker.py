"""Checks of the brokers: that they answer, and let this user do what jobs do.

Nothing is changed by them.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from headrace_client.blocking import Client
from headrace_client.endpoint import parse_endpoints
from headrace_client.error import (
    AccessRefusedError,
    HeadraceError,
    NotAuthenticatedError,
    NotFoundError,
)
from headrace_client.export import ARCHIVE
from headrace_pipeline.error import OptionError
from headrace_pipeline.jobs.doctor.check import Check, fail, ok, warn
from headrace_pipeline.limits import CLOCK_SKEW_SECONDS, TCP_CONNECT_SECONDS_MAX
from headrace_pipeline.options.connection import Connection

SAMPLES: Final = "flow_samples"
PROBE: Final = "headrace-doctor"  # what is asked about, and is not there


def check_endpoints(connection: Connection) -> list[Check]:
    """Check which endpoints accept connections; jobs need one, and are safer with all."""
    endpoints = parse_endpoints(connection.endpoints)
    faults = {each: fault for each in endpoints if (fault := _fault(each)) is not None}
    if not faults:
        return [ok("endpoints", f"{', '.join(endpoints)} take connections")]
    says = "; ".join(f"{each}: {fault}" for each, fault in faults.items())
    if len(faults) == len(endpoints):
        advice = "name nodes' gRPC listeners ([listeners] grpc or grpcs), and open the way there"
        return [fail("endpoints", says, advice)]
    return [warn("endpoints", says, "jobs go on as long as one endpoint answers; mend the others")]


def _fault(endpoint: str) -> str | None:
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), TCP_CONNECT_SECONDS_MAX):
            return None
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__


def check_log_in(
    connection: Connection, connect: Callable[[Connection], Client]
) -> tuple[Check, Client | None]:
    """Log in, and return the client where that succeeds; the caller closes it."""
    who = connection.username or "the certificate's user"
    try:
        client = connect(connection)
    except NotAuthenticatedError as error:
        return fail("log-in", error.text, "look at --username and --password-file"), None
    except (HeadraceError, OptionError) as error:
        advice = "look at --endpoints, and at --tls-ca-file where brokers speak TLS"
        return fail("log-in", str(error), advice), None
    return ok("log-in", f"as {who} at {client.endpoint}"), client


def check_rights(client: Client, vhost: str) -> Iterator[Check]:
    """Ask for what each job asks for, without an effect."""
    yield _guarded("telemetry", lambda: _telemetry(client), "give the user the tag monitoring")
    yield _guarded("archives", lambda: _archives(client, vhost), "let the user enter the vhost")
    yield _guarded("advice", lambda: _advice(client), "give the user the tag policymaker")


def _guarded(name: str, look: Callable[[], Check], advice: str) -> Check:
    """Return what a look finds; a refusal is a warning, for not every job needs every right."""
    try:
        return look()
    except AccessRefusedError as error:
        return warn(name, error.text, advice)
    except NotFoundError as error:
        return fail(name, error.text, "declare it, or look at --vhost and the name")
    except HeadraceError as error:
        return fail(name, error.text, "try again once the cluster is well")


def _telemetry(client: Client) -> Check:
    found = client.export.shards(SAMPLES)
    if found.missing_nodes:
        missing = ", ".join(found.missing_nodes)
        return warn("telemetry", f"no answer for {missing}", "their rows are read later")
    if not any(each.next_index for each in found.shards):
        advice = "set [telemetry] enabled = true in the brokers' configuration"
        return warn("telemetry", "no node keeps rows", advice)
    return ok("telemetry", f"{len(found.shards)} nodes keep rows")


def _archives(client: Client, vhost: str) -> Check:
    found = client.export.shards(ARCHIVE, vhost)
    if not found.shards:
        advice = "set archive: headers or full in a policy for the queues that are to be archived"
        return warn("archives", f"no queue of vhost {vhost!r} has an archive", advice)
    rows = sum(each.next_index - each.first_index for each in found.shards)
    return ok("archives", f"{len(found.shards)} queues of vhost {vhost!r}, {rows} rows to read")


def _advice(client: Client) -> Check:
    # A queue that is not there is looked for only once it is known that the user may.
    with contextlib.suppress(NotFoundError):
        client.advice.delete(PROBE)
    return ok("advice", "may be given")


def check_clock(client: Client, now: datetime) -> Check:
    """Compare this clock with the brokers', by the sample that each of them notes a second."""
    try:
        shards = client.export.shards(SAMPLES).shards
    except HeadraceError as error:
        return warn("clock", f"brokers' clocks are not known: {error.text}", "run ntpd or chrony")
    ages = {each.node: now.timestamp() - each.last_ms / 1000 for each in shards if each.last_ms}
    if not ages:
        return warn("clock", "brokers' clocks are not known: no samples", "run ntpd or chrony")
    node, worst = max(ages.items(), key=lambda item: abs(item[1]))
    if abs(worst) > CLOCK_SKEW_SECONDS:
        says = f"the last sample of {node} is {worst:.1f} s old by this clock"
        return warn("clock", says, "set both clocks by NTP; a node that is down may be why, too")
    return ok("clock", f"within {CLOCK_SKEW_SECONDS} s of {len(ages)} nodes")


def check_lease_group(client: Client, queue: str, group: str, now: datetime) -> Check:
    """Check whether a group of `headrace_queue` holds messages of a queue."""

    def look() -> Check:
        state = client.lease_group(queue, group).describe()
        if state is None:
            return ok(
                "group", f"{group} of queue {queue} is not there yet; the first query makes it"
            )
        says = f"{group} of queue {queue} was opened {state.epoch} times"
        if state.deadline is None or state.deadline <= now:
            return ok("group", f"{says}, and holds nothing")
        left = (state.deadline - now).total_seconds()
        advice = "one query for a group: a second one fences the first, which fails then"
        return warn("group", f"{says}, and holds messages for {left:.0f} s more", advice)

    return _guarded("group", look, "give the user permission to read the queue")


def check_log_group(client: Client, log: str, group: str) -> Check:
    """Check the position of a group of `headrace_log`, and whether rows went unread."""

    def look() -> Check:
        found = client.export.groups(log, group=group).groups
        if not found:
            return ok("group", f"{group} of log {log} is not there yet; the first query makes it")
        lost = sum(max(0, each.first_index - each.committed) for each in found)
        behind = sum(each.next_index - max(each.committed, each.first_index) for each in found)
        epochs = ", ".join(sorted({str(each.epoch) for each in found}))
        says = f"{group} of log {log}: {len(found)} shards, epochs {epochs}, {behind} rows behind"
        if lost:
            advice = "keep rows longer, or read oftener; failOnDataLoss=false goes on without them"
            return fail("group", f"{says}, {lost} dropped unread", advice)
        return ok("group", says)

    return _guarded("group", look, "give the user the rights that reading the log takes")


def check_brokers(
    connection: Connection,
    connect: Callable[[Connection], Client],
    groups: Callable[[Client], list[Check]],
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> list[Check]:
    """Do all checks of brokers.

    Args:
        connection: to them.
        connect: makes a client, which is closed at the end.
        groups: checks of groups that the user has named.
        now: the time.
    """
    checks = check_endpoints(connection)
    if checks[-1].state == "fail":
        return checks
    logged_in, client = check_log_in(connection, connect)
    checks.append(logged_in)
    if client is None:
        return checks
    with client:
        checks += check_rights(client, connection.vhost)
        checks.append(check_clock(client, now()))
        return [*checks, *groups(client)]
