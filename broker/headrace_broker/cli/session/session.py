"""Session of a command with a cluster: address, credentials, output."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import click
import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape
from typing_extensions import override

from headrace_broker.cli.session.api_client import ApiAnswer, ApiClient, ApiError
from headrace_broker.cli.session.client_tls import ClientTls, tls_of
from headrace_broker.cli.session.printable import printable

# Exit codes; click ends with 2 where a command line is wrong.
EXIT_REFUSED: Final = 1
EXIT_NOT_FOUND: Final = 3
EXIT_NOT_ALLOWED: Final = 4
EXIT_UNAVAILABLE: Final = 5

ADDRESS_DEFAULT: Final = "127.0.0.1:15672"
ANSWER_S_MAX: Final = 60.0  # seconds; a listing waits some seconds for nodes that do not answer
PLAIN_COLUMNS: Final = 1000  # of what is printed into a file or a pipe

Row = Mapping[str, Any]
Column = str | Callable[[Row], Any]


class CommandError(click.ClickException):
    """A command failed; the exit code is one of EXIT_*."""

    def __init__(self, text: str, exit_code: int = EXIT_REFUSED) -> None:
        super().__init__(text)
        self.exit_code = exit_code  # type: ignore[misc] # click has it as one for all

    @override
    def format_message(self) -> str:
        """Return the text, with no control characters of names in it."""
        return printable(self.message, "\n")


class Session:
    """A cluster, reached through one node's API.

    Attributes:
        with_tls: whether TLS was asked for; a file for it, or an `address` of https, does as well.
        ca_file: see `ClientTls`, as are the next ones.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        # HOST:PORT of the node's HTTP API, or that as a URL
        self.address = environment.get("HEADRACE_API", ADDRESS_DEFAULT)
        self.user = environment.get("HEADRACE_API_USER", "guest")  # who asks
        self.vhost = "/"  # where
        self.output = "table"  # "table", or "json" for programs
        self._password = environment.get("HEADRACE_API_PASSWORD")
        self.with_tls, files = tls_of(environment)
        self.ca_file, self.cert_file, self.key_file = files.ca_file, files.cert_file, files.key_file

    @property
    def login(self) -> tuple[str, str]:
        """User and password, asked for on a terminal; click.UsageError where there is none."""
        if self._password is None and self.user == "guest":
            self._password = "guest"  # noqa: S105 - of a new cluster, from loopback only
        if self._password is None:
            if not sys.stdin.isatty():
                raise click.UsageError(
                    f"say the password of '{self.user}' in HEADRACE_API_PASSWORD"
                )
            self._password = click.prompt(f"Password of {self.user}", hide_input=True, err=True)
        return self.user, self._password

    @property
    def tls(self) -> ClientTls | None:
        """TLS settings, None for plain connections."""
        asked = self.with_tls or self.address.startswith("https://")
        return ClientTls(self.ca_file, self.cert_file, self.key_file) if asked else None

    @property
    def as_json(self) -> bool:
        """True if a program reads the output."""
        return self.output == "json"

    # Asking

    @functools.cached_property
    def _client(self) -> ApiClient:
        tls = self.tls
        return ApiClient(self.address, *self.login, tls.context() if tls is not None else None)

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> ApiAnswer:
        """Make a request of a quoted path and return the answer, whatever its status.

        Raises CommandError: EXIT_UNAVAILABLE; click.BadParameter: the address cannot be one.
        """
        try:
            answer = self._client.request(method, path, body, headers, ANSWER_S_MAX)
        except ApiError as error:
            raise CommandError(str(error), EXIT_UNAVAILABLE) from None
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--api") from None
        return answer

    def fetch(self, path: str) -> ApiAnswer:
        """Return the answer to a GET, with what it lacks; CommandError as `request`."""
        answer = self.ask("GET", path)
        if answer.status >= 300:
            raise refusal(answer)
        return answer

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        """Make a request, as `ask`, and return the body; CommandError for every refusal."""
        answer = self.ask(method, path, body, headers)
        if answer.status >= 300:
            raise refusal(answer)
        if answer.partial:
            click.echo(f"Warning: the list is not complete: {answer.partial}", err=True)
        return answer.body

    def get(self, path: str) -> Any:
        """Return the body of a GET; raises as `request`."""
        return self.request("GET", path)

    # Printing

    def done(self, text: str) -> None:
        """Say what was done, to people."""
        if not self.as_json:
            click.echo(printable(text))

    def print_rows(self, rows: Iterable[Row], columns: Mapping[str, Column]) -> None:
        """Print rows as JSON, or as a table of columns: by title a key or a function."""
        if self.as_json:
            print_json(list(rows))
            return
        cells = [[_text(row, each) for each in columns.values()] for row in rows]
        head, *lines = _lines([list(columns), *cells])
        click.echo("\n".join([click.style(head, bold=True), *lines]))

    def print_object(self, row: Row, columns: Mapping[str, Column]) -> None:
        """Print one object: a line for each column, or all there is as JSON."""
        if self.as_json:
            print_json(row)
            return
        click.echo("\n".join(_lines([[title, _text(row, columns[title])] for title in columns])))


def refusal(answer: ApiAnswer) -> CommandError:
    """Return how a command ends for an answer that refuses."""
    codes = {
        401: EXIT_NOT_ALLOWED,
        403: EXIT_NOT_ALLOWED,
        404: EXIT_NOT_FOUND,
        503: EXIT_UNAVAILABLE,
    }
    return CommandError(answer.reason, codes.get(answer.status, EXIT_REFUSED))


def console() -> Console:
    """Return the terminal, or something wide where nothing limits lines."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return Console(highlight=False)
    return Console(highlight=False, width=PLAIN_COLUMNS)


def print_json(found: Any) -> None:
    """Print what the API answers, for programs."""
    click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())


def markup(text: str) -> str:
    """Return markup of rich that shows a text as `printable` has it."""
    return escape(printable(text))


def text_of(value: object) -> str:
    """Return a value as it stands in a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(text_of, value))
    if isinstance(value, Mapping):
        return " ".join(f"{key}={text_of(each)}" for key, each in value.items())
    return str(value)


def _text(row: Row, column: Column) -> str:
    """Return what stands in a column of a row."""
    return printable(text_of(row.get(column) if isinstance(column, str) else column(row)))


def _lines(rows: list[list[str]]) -> list[str]:
    """Return the lines of a table: each column is as wide as it needs, and terminals wrap lines."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(set_cell_size, row, widths)).rstrip() for row in rows]


# Options


def _store(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep an option where all commands find it; one behind the command's name wins."""
    session = context.ensure_object(Session)
    if value is not None and parameter.name is not None:
        setattr(session, parameter.name, value)


def _store_file(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep a file for TLS, which asks for TLS as well."""
    _store(context, parameter, value)
    if value is not None:
        context.ensure_object(Session).with_tls = True


NO_LIMIT: Final = "none"
_SHARED: Final[dict[str, Any]] = {"expose_value": False, "callback": _store}


def _address_option() -> click.Option:
    text = f"Of a node's HTTP API.  [HEADRACE_API; {ADDRESS_DEFAULT}]"
    return click.Option(["--api", "address"], metavar="HOST:PORT|URL", help=text, **_SHARED)


def _client_options() -> list[click.Option]:
    user = "Who asks, with the password HEADRACE_API_PASSWORD.  [HEADRACE_API_USER; guest]"
    kinds = click.Choice(["table", "json"])
    output = "What to print; json for programs.  [table]"
    return [
        click.Option(["--user"], help=user, **_SHARED),
        click.Option(["--vhost"], help="The virtual host.  [/]", **_SHARED),
        click.Option(["-o", "--output"], type=kinds, help=output, **_SHARED),
        *_tls_options(),
    ]


def _tls_options() -> list[click.Option]:
    tls = "Speak TLS.  [HEADRACE_API_TLS; as soon as a file for it is named]"
    files = {
        "--ca-file": "Authorities of nodes, PEM.  [HEADRACE_API_CA_FILE; those of the system]",
        "--cert-file": "A certificate of who asks, PEM.  [HEADRACE_API_CERT_FILE]",
        "--key-file": "Its key.  [HEADRACE_API_KEY_FILE; in --cert-file]",
    }
    shared: dict[str, Any] = {"expose_value": False, "callback": _store_file, "metavar": "PATH"}
    return [
        click.Option(["--tls/--no-tls", "with_tls"], default=None, help=tls, **_SHARED),
        *(click.Option([name], help=text, **shared) for name, text in files.items()),
    ]


class ClientCommand(click.Command):
    """A command that talks to a cluster as clients do: it gets a `Session` that says who it is."""

    def __init__(self, name: str | None, callback: Callable[..., Any], **more: Any) -> None:
        super().__init__(name, callback=click.pass_obj(callback), **more)
        self.params = [*self.params, *self.session_options()]

    def session_options(self) -> list[click.Option]:
        """Return the options of the `Session`."""
        return _client_options()


class SessionCommand(ClientCommand):
    """A command that asks a node's API: it takes the options of a `Session` and gets that."""

    @override
    def session_options(self) -> list[click.Option]:
        return [_address_option(), *_client_options()]


class SessionGroup(click.Group):
    """Commands that ask a node's API; the options may also stand before the command's name."""

    command_class = SessionCommand
    group_class = type

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.params = [*self.params, _address_option(), *_client_options()]


# Arguments


def pairs(what: str, given: Sequence[str]) -> dict[str, Any]:
    """Return KEY=VALUE arguments, as JSON or else text; click.BadParameter if malformed."""
    found: dict[str, Any] = {}
    for each in given:
        key, sign, text = each.partition("=")
        if not key or not sign:
            raise click.BadParameter(f"'{each}' must be KEY=VALUE", param_hint=what)
        try:
            found[key] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            found[key] = text
    return found


def change_limits(session: Session, path: str, given: Sequence[str]) -> None:
    """Set limits of a user or vhost, LIMIT=NUMBER or LIMIT=none each; print all for none given.

    Raises click.BadParameter: one is something else; nothing is changed.
    """
    wanted = pairs("LIMIT=NUMBER", given)
    for name, value in wanted.items():
        if value != NO_LIMIT and (isinstance(value, bool) or not isinstance(value, int)):
            raise click.BadParameter(f"'{name}' must be a number, or {NO_LIMIT}")
    for name, value in wanted.items():
        place = f"{path}/{quote(name, safe='')}"
        if value == NO_LIMIT:
            session.request("DELETE", place)
        else:
            session.request("PUT", place, {"value": value})
    if wanted:
        session.done(f"limits are set: {', '.join(wanted)}")
        return
    rows = [
        {"limit": name, "value": value}
        for row in session.get(path)
        for name, value in row["value"].items()
    ]
    session.print_rows(rows, {"limit": "limit", "value": "value"})
