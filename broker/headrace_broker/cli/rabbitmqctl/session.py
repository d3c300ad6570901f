"""One run of the command: where it talks to, and how it prints."""

from __future__ import annotations

from typing import Any, Final, NoReturn

import click
import msgspec

from headrace_broker.cli.session.api_client import ApiAnswer, ApiClient, ApiError
from headrace_broker.cli.session.client_tls import ClientTls
from headrace_broker.cli.session.printable import printable

# Exit codes of sysexits.h, as rabbitmqctl has them.
EX_USAGE: Final = 64
EX_DATAERR: Final = 65
EX_NOUSER: Final = 67
EX_UNAVAILABLE: Final = 69
EX_SOFTWARE: Final = 70
EX_NOPERM: Final = 77


class CommandError(click.ClickException):
    """The command failed; the text says why, the exit code is one of EX_*."""

    def __init__(self, text: str, exit_code: int = EX_SOFTWARE) -> None:
        super().__init__(text)
        self.exit_code = exit_code  # type: ignore[misc] # click has it as one for all

    def show(self, file: Any = None) -> None:
        """Print it as rabbitmqctl does."""
        click.echo("Error:\n" + printable(self.message, "\n"), err=True, file=file)


class Settings(msgspec.Struct):
    """Options that every command takes, before its name or behind it."""

    api: str = "127.0.0.1:15672"  # HOST:PORT of a node's HTTP API
    user: str = "guest"  # who asks
    password: str = "guest"  # noqa: S105 - the default user of a new cluster, from loopback only
    vhost: str = "/"  # where
    quiet: bool = False  # say nothing but what was asked for
    headers: bool = True  # print the names of columns
    formatter: str = "table"  # "table" or "json"
    seconds: float = 60.0  # how long to wait for an answer
    tls: ClientTls | None = None  # how nodes are known, None in the clear


class Session:
    """Asks the node and prints."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        tls = settings.tls.context() if settings.tls is not None else None
        self._client = ApiClient(settings.api, settings.user, settings.password, tls)

    def say(self, text: str) -> None:
        """Print what is going on, unless quiet or for a program."""
        if not self.settings.quiet and self.settings.formatter == "table":
            click.echo(text)

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> ApiAnswer:
        """Make a request and return the answer, whatever its status.

        Raises CommandError: EX_UNAVAILABLE no answer, EX_NOPERM for the log-in or its tags.
        """
        seconds = self.settings.seconds
        try:
            answer = self._client.request(method, path, body, headers, seconds)
        except ApiError as error:
            raise CommandError(
                f"unable to perform an operation on the node at {self.settings.api}: {error}",
                EX_UNAVAILABLE,
            ) from error
        except ValueError as error:
            raise CommandError(f"--api: {error}", EX_USAGE) from None
        if answer.status in (401, 403):
            raise CommandError(f"user '{self.settings.user}': {answer.reason}", EX_NOPERM)
        if answer.status == 503:
            raise CommandError(answer.reason, EX_UNAVAILABLE)
        if answer.partial:
            click.echo(f"Warning: the list is not complete: {answer.partial}", err=True)
        return answer

    def get(self, path: str) -> Any:
        """Return the body of a GET; CommandError as `ask`, and for every refusal."""
        answer = self.ask("GET", path)
        if answer.status != 200:
            self.fail(answer)
        return answer.body

    def change(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> ApiAnswer:
        """Make a request that changes something; CommandError as `ask`, and for every refusal."""
        answer = self.ask(method, path, body, headers)
        if answer.status not in (200, 201, 204):
            self.fail(answer)
        return answer

    def fail(self, answer: ApiAnswer) -> NoReturn:
        """Raise what a refusal is to the shell."""
        reason = answer.reason
        code = EX_SOFTWARE
        if answer.status == 404 and reason.startswith("no user"):
            code = EX_NOUSER
        elif answer.status == 404 and reason.startswith("no vhost"):
            code = EX_DATAERR
        raise CommandError(reason, code)
