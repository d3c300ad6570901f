"""The commands `headrace backup` and `headrace restore`."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import click
import msgspec
from click.core import ParameterSource
from typing_extensions import override

from headrace_broker.cli.backup.chosen_definitions import of_queues
from headrace_broker.cli.backup.cluster import QueueGoneError, open_cluster
from headrace_broker.cli.backup.data_file import DamagedError
from headrace_broker.cli.backup.manifest import (
    BEGINNING,
    Manifest,
    QueueBackup,
    Skipped,
    read_manifest,
)
from headrace_broker.cli.backup.putting_back import Outcome, PuttingBack
from headrace_broker.cli.backup.rate import Bytes, Rate
from headrace_broker.cli.backup.saving import FILE_BYTES, NOT_DURABLE, Saving
from headrace_broker.cli.backup.selection import Selection
from headrace_broker.cli.backup.store import Store, StoreError, open_store
from headrace_broker.cli.backup.verifying import verify
from headrace_broker.cli.session.progress import Gauge, gauge
from headrace_broker.cli.session.session import (
    EXIT_NOT_FOUND,
    EXIT_REFUSED,
    CommandError,
    Session,
    SessionCommand,
    SessionGroup,
    print_json,
)
from headrace_protos.broker.v1.backup_pb2 import RestoreOpen

EXIT_DAMAGED: Final = 6
EXIT_PARTIAL: Final = 7
HOLD_S: Final = 900  # for which a point is kept when nobody reads: to begin anew after a mishap
HEAD_BYTES: Final = 64  # reckoned for a message beside its body, for the bar

_grpc = click.option(
    "--grpc",
    "grpc_address",
    metavar="HOST:PORT",
    help="Of nodes' listeners for gRPC, several joined by commas.  [as the API says]",
)
_queues = click.option(
    "-q",
    "--queues",
    "patterns",
    multiple=True,
    metavar="[VHOST=]REGEX",
    help="Which queues, by their names; may be repeated.  [all]",
)
_rate = click.option(
    "--rate", type=Bytes(), metavar="BYTES", help="At most so many a second: 500k, 50M, 8MiB."
)


class _BackupGroup(SessionGroup):
    """Makes a backup where no other command is named."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        shared = {name for each in self.params for name in each.opts}
        at = 0
        while at < len(args) and args[at].partition("=")[0] in shared:
            at += 1 if "=" in args[at] else 2
        if at < len(args) and args[at] not in (*self.commands, "-h", "--help"):
            args = [*args[:at], "create", *args[at:]]
        return super().parse_args(ctx, args)


@click.group(cls=_BackupGroup)
def backup() -> None:
    """Back definitions and messages up: `headrace backup PATH`; look at backups.

    PATH is a directory, or a URL of an object store: s3://BUCKET/PATH, gs://BUCKET/PATH.
    """


@backup.command("create")
@click.argument("path")
@_queues
@_rate
@_grpc
@click.option(
    "--hold",
    type=click.IntRange(1, 86_400),
    default=HOLD_S,
    show_default=True,
    metavar="SECONDS",
    help="How long the cluster keeps a queue's point for a backup that was cut off.",
)
@click.option(
    "--file-size",
    type=Bytes(),
    default=FILE_BYTES,
    metavar="BYTES",
    help="Of a file of messages.  [64MiB]",
)
def create(
    session: Session,
    path: str,
    patterns: tuple[str, ...],
    rate: int | None,
    grpc_address: str | None,
    hold: int,
    file_size: int,
) -> None:
    """Write definitions, and messages of queues, to PATH; go on with what was cut off there."""
    selection = Selection(patterns, _vhost(session))
    with _errors():
        store = open_store(path)
        overview = session.get("/api/overview")
        rows = _rows(session)
        chosen = [row for row in rows if selection.has(row["vhost"], row["name"])]
        if patterns and not chosen:
            raise CommandError("no queue has such a name", EXIT_NOT_FOUND)
        cluster = open_cluster(session, grpc_address)
        try:
            with gauge("definitions", session.as_json) as bar:
                listener = _Bar(bar, sum(_reckoned(row) for row in chosen))
                saving = Saving(store, cluster, Rate(rate), listener, hold * 1000, file_size)
                manifest = _create(saving, session, overview, selection, chosen)
        finally:
            cluster.close()
    _tell_backup(session, store, manifest)
    if any(each.reason != NOT_DURABLE for each in manifest.skipped):
        sys.exit(EXIT_PARTIAL)


def _create(
    saving: Saving, session: Session, overview: Any, selection: Selection, chosen: list[Any]
) -> Manifest:
    beginning = saving.begin(
        overview["cluster_name"], selection.described(), lambda: session.get("/api/definitions")
    )
    queues: list[QueueBackup] = []
    skipped: list[Skipped] = []
    for row in sorted(chosen, key=lambda each: (each["vhost"], each["name"])):
        vhost, name = row["vhost"], row["name"]
        if not row["durable"]:
            skipped.append(Skipped(vhost=vhost, name=name, reason=NOT_DURABLE))
            continue
        saving.listener.queue(vhost, name)
        saved = saving.queue(vhost, name)
        if isinstance(saved, Skipped):
            skipped.append(saved)
        else:
            queues.append(saved)
    return saving.end(beginning, queues, skipped)


@backup.command("show")
@click.argument("path")
def show(session: Session, path: str) -> None:
    """Show what the backup at PATH holds."""
    with _errors():
        manifest = _manifest(open_store(path))
    if session.as_json:
        print_json(msgspec.to_builtins(manifest))
        return
    click.echo(
        f"backup {manifest.id} of cluster '{manifest.cluster}', {manifest.started} to"
        f" {manifest.finished}"
    )
    session.print_rows(
        [
            {
                "vhost": each.vhost,
                "queue": each.name,
                "messages": each.messages,
                "octets": each.octets,
                "files": len(each.files),
                "index": each.point.applied_index,
            }
            for each in manifest.queues
        ],
        {key: key for key in ("vhost", "queue", "messages", "octets", "files", "index")},
    )
    for skipped in manifest.skipped:
        click.echo(
            f"not in it: queue '{skipped.name}' in vhost '{skipped.vhost}', {skipped.reason}"
        )


@backup.command("verify")
@click.argument("path")
def verify_backup(session: Session, path: str) -> None:
    """Read the backup at PATH and compare everything with its checksums."""
    with _errors():
        store = open_store(path)
        manifest = _manifest(store)
        with gauge("verify", session.as_json) as bar:
            problems = verify(store, manifest, _Bar(bar, manifest.octets).add_bytes)
    if session.as_json:
        print_json({"ok": not problems, "messages": manifest.messages, "problems": problems})
    for problem in problems:
        click.echo(f"Error: {problem}", err=True)
    if problems:
        sys.exit(EXIT_DAMAGED)
    session.done(
        f"the backup is whole: {manifest.messages} messages of {len(manifest.queues)} queues,"
        f" {manifest.octets} bytes"
    )


@click.command(cls=SessionCommand)
@click.argument("path")
@_queues
@click.option(
    "--into", metavar="QUEUE", help="Another queue to put the messages of one queue into."
)
@click.option("--append", is_flag=True, help="Also into queues that hold messages.")
@click.option(
    "--again", is_flag=True, help="Also what was restored from this backup before: a second time."
)
@click.option(
    "--definitions",
    "kind",
    type=click.Choice(["queues", "all", "none"]),
    default="queues",
    show_default=True,
    help="What to declare: the queues and what leads to them, all of the cluster, or nothing.",
)
@click.option("--no-messages", is_flag=True, help="Definitions only.")
@_rate
@_grpc
def restore(
    session: Session,
    path: str,
    patterns: tuple[str, ...],
    into: str | None,
    append: bool,
    again: bool,
    kind: str,
    no_messages: bool,
    rate: int | None,
    grpc_address: str | None,
) -> None:
    """Declare queues as the backup at PATH has them, and put their messages into them.

    Repeat a restore that was cut off: a queue takes each message of a backup once.
    """
    vhost = _vhost(session)
    with _errors():
        store = open_store(path)
        manifest = _manifest(store)
        selection = Selection(patterns, vhost if into is None else None)
        chosen = [each for each in manifest.queues if selection.has(each.vhost, each.name)]
        if patterns and not chosen:
            raise CommandError("the backup has no queue with such a name", EXIT_NOT_FOUND)
        if into is not None and len(chosen) != 1:
            text = f"--into takes the messages of one queue, {len(chosen)} are chosen"
            raise click.UsageError(text)
        if into is None:
            _declare(session, store, manifest, chosen, kind)
        rows: list[dict[str, Any]] = []
        if not no_messages:
            rows = _put_back(
                session,
                store,
                [(each, *_target(each, into, vhost)) for each in chosen],
                (manifest.id if not again else str(uuid.uuid4()), append),
                Rate(rate),
                grpc_address,
            )
    _tell_restored(session, rows)


def _target(saved: QueueBackup, into: str | None, vhost: str | None) -> tuple[str, str]:
    return (saved.vhost, saved.name) if into is None else (vhost or saved.vhost, into)


def _declare(
    session: Session, store: Store, manifest: Manifest, chosen: list[QueueBackup], kind: str
) -> None:
    if kind == "none":
        return
    definitions = msgspec.json.decode(store.read(manifest.definitions.name))
    if kind == "queues":
        definitions = of_queues(definitions, {(each.vhost, each.name) for each in chosen})
    session.request("POST", "/api/definitions", definitions)
    session.done("definitions are declared")


def _put_back(
    session: Session,
    store: Store,
    targets: list[tuple[QueueBackup, str, str]],
    how: tuple[str, bool],
    rate: Rate,
    grpc_address: str | None,
) -> list[dict[str, Any]]:
    """Put messages of queues back; return what became of each queue's."""
    name, append = how
    rows = []
    cluster = open_cluster(session, grpc_address)
    try:
        with gauge("restore", session.as_json) as bar:
            listener = _Bar(bar, sum(saved.octets for saved, _, _ in targets))
            putting = PuttingBack(store, cluster, rate, listener)
            for saved, vhost, queue in targets:
                listener.queue(vhost, queue)
                opening = RestoreOpen(
                    vhost=vhost,
                    queue=queue,
                    restore_id=f"backup {name} {saved.folder.rpartition('/')[2]}",
                    append=append,
                    name=f"restore of '{saved.name}'",
                )
                outcome = putting.queue(saved, opening)
                rows.append({"vhost": vhost, "queue": queue, **outcome._asdict()})
    finally:
        cluster.close()
    return rows


def _tell_restored(session: Session, rows: list[dict[str, Any]]) -> None:
    columns = {"vhost": "vhost", "queue": "queue", **{key: key for key in Outcome._fields}}
    session.print_rows(rows, columns)
    refused = sum(row["refused"] for row in rows)
    if refused:
        text = f"{refused} messages were refused: their queues are full (max-length)"
        raise CommandError(text, EXIT_PARTIAL)


def _tell_backup(session: Session, store: Store, manifest: Manifest) -> None:
    if session.as_json:
        print_json(msgspec.to_builtins(manifest))
        return
    session.done(
        f"{manifest.messages} messages of {len(manifest.queues)} queues are in {store.place}"
    )
    for each in manifest.skipped:
        text = f"Warning: queue '{each.name}' in vhost '{each.vhost}' is left out: {each.reason}"
        click.echo(text, err=True)


class _Bar:
    """Shows how far it is."""

    def __init__(self, shown: Gauge, total: int) -> None:
        self._shown = shown
        self._total = total
        self._done = 0

    def queue(self, vhost: str, name: str) -> None:
        """Another queue begins."""
        self._shown.show(f"{name} ({vhost})")

    def add_bytes(self, more: int) -> None:
        """So much more is done."""
        self._done += more
        self._shown.reach(self._done, max(self._total, self._done))


def _reckoned(row: Any) -> int:
    return int(row.get("message_bytes") or 0) + HEAD_BYTES * int(row.get("messages") or 0)


def _rows(session: Session) -> list[Any]:
    columns = "vhost,name,durable,exclusive,messages,message_bytes"
    found = session.get(f"/api/queues?columns={columns}")
    return [row for row in found if not row["exclusive"]]


def _vhost(session: Session) -> str | None:
    """Return the virtual host that was named; None for all of them."""
    at: click.Context | None = click.get_current_context()
    while at is not None:
        if at.get_parameter_source("vhost") is ParameterSource.COMMANDLINE:
            return session.vhost
        at = at.parent
    return None


def _manifest(store: Store) -> Manifest:
    try:
        return read_manifest(store)
    except FileNotFoundError:
        if store.size(BEGINNING) >= 0:
            text = f"{store.place} holds a backup that was not finished: repeat it to go on with it"
            raise CommandError(text, EXIT_NOT_FOUND) from None
        raise CommandError(f"{store.place} holds no backup", EXIT_NOT_FOUND) from None


@contextmanager
def _errors() -> Iterator[None]:
    """Tell what goes wrong as the end of a command."""
    try:
        yield
    except DamagedError as error:
        raise CommandError(str(error), EXIT_DAMAGED) from None
    except QueueGoneError as error:
        raise CommandError(str(error), EXIT_NOT_FOUND) from None
    except StoreError as error:
        raise CommandError(str(error), EXIT_REFUSED) from None
    except OSError as error:
        raise CommandError(f"{error}", EXIT_REFUSED) from None
