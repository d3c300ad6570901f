"""Common options of all commands, before and behind the command's name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from headrace_broker.cli.rabbitmqctl.session import Session, Settings
from headrace_broker.cli.session.client_tls import tls_of

FORMATTERS: Final = ("table", "json", "pretty_table")

Handler = Callable[..., None]

_OPTIONS: Final = (
    click.option("-n", "--node", help="HOST:PORT of a node's HTTP API; NAME@HOST says nothing."),
    click.option("--api", help="HOST:PORT of a node's HTTP API.  [env: HEADRACE_API]"),
    click.option("--api-user", help="Who asks.  [env: HEADRACE_API_USER; guest]"),
    click.option("-p", "--vhost", help="The virtual host; / by default."),
    click.option("-q", "--quiet", is_flag=True, help="Print nothing but what was asked for."),
    click.option("-s", "--silent", is_flag=True, help="Neither headers of columns."),
    click.option("--no-table-headers", is_flag=True, help="No headers of columns."),
    click.option("--formatter", type=click.Choice(FORMATTERS), help="table, or json for programs."),
    click.option("-t", "--timeout", type=click.FloatRange(min=0), help="Seconds to wait."),
    click.option("-l", "--longnames", is_flag=True, help="Accepted; says nothing here."),
)
_NAMES: Final = (
    *("node", "api", "api_user", "vhost", "quiet", "silent"),
    *("no_table_headers", "formatter", "timeout", "longnames"),
)


def with_options(command: Any) -> Any:
    """Add the options that every command takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_options(settings: Settings, given: dict[str, Any]) -> None:
    """Move the common options out of a command's parameters into the settings."""
    options = {name: given.pop(name) for name in _NAMES}
    node = options["node"] or ""
    if "@" not in node and ":" in node:
        settings.api = node
    settings.api = options["api"] or settings.api
    settings.user = options["api_user"] or settings.user
    settings.vhost = options["vhost"] if options["vhost"] is not None else settings.vhost
    settings.quiet |= options["quiet"] or options["silent"]
    settings.headers &= not (options["silent"] or options["no_table_headers"])
    if options["formatter"]:
        settings.formatter = "json" if options["formatter"] == "json" else "table"
    settings.seconds = options["timeout"] or settings.seconds


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@with_options
@click.pass_context
def group(context: click.Context, /, **given: Any) -> None:
    """Look at a Headrace cluster and change it, in the words of RabbitMQ's rabbitmqctl.

    The password is read from HEADRACE_API_PASSWORD, "guest" by default.
    """
    context.obj = from_environment(os.environ)
    take_options(context.obj, given)


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Return what the environment says."""
    default = Settings()
    with_tls, files = tls_of(environment)
    return Settings(
        api=environment.get("HEADRACE_API", default.api),
        user=environment.get("HEADRACE_API_USER", default.user),
        password=environment.get("HEADRACE_API_PASSWORD", default.password),
        tls=files if with_tls else None,
    )


def command(name: str) -> Callable[[Handler], click.Command]:
    """Make a function that takes a session and its own arguments a command of this name."""

    def decorate(handler: Handler) -> click.Command:
        @click.pass_context
        def run(context: click.Context, /, **given: Any) -> None:
            settings: Settings = context.obj
            take_options(settings, given)
            handler(Session(settings), **given)

        run.__doc__ = handler.__doc__
        run.__click_params__ = list(getattr(handler, "__click_params__", []))  # type: ignore[attr-defined]
        made: click.Command = group.command(name)(with_options(run))
        return made

    return decorate
