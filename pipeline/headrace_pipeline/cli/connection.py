"""Options that several commands have: how brokers are reached, and what runs Spark."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import click

from headrace_client.endpoint import DEFAULT_PORT
from headrace_pipeline.error import OptionError
from headrace_pipeline.jobs.session import SessionSettings, read_conf
from headrace_pipeline.options.connection import read_connection
from headrace_pipeline.options.option import Options

Function = Callable[..., Any]

# Option of the command, option of sources and sinks, help.
_TEXTS: Final = (
    ("endpoints", "endpoints", "HOST:PORT of brokers' gRPC listeners, with commas"),
    ("vhost", "vhost", "of queues and exchanges"),
    ("username", "username", "who logs in; not needed with a certificate"),
    ("password-file", "passwordFile", "file with the password in its first line"),
    ("tls-ca-file", "tlsCaFile", "PEM of the authorities that brokers' certificates are of"),
    ("tls-cert-file", "tlsCertFile", "PEM of the client's certificate"),
    ("tls-key-file", "tlsKeyFile", "PEM of its key"),
    ("tls-server-name", "tlsServerName", "name in brokers' certificates, where it is another one"),
)
_FLAGS: Final = {option: f"--{name}" for name, option, _ in _TEXTS} | {"tls": "--tls"}
_DEFAULTS: Final = {"endpoints": f"127.0.0.1:{DEFAULT_PORT}", "vhost": "/"}


def connection_options(command: Function) -> Function:
    """Give a command the options of a connection, which it gets as `connection: Connection`.

    Each has an environment variable too, such as HEADRACE_ENDPOINTS.
    """

    @functools.wraps(command)
    def wrapped(*args: Any, tls: bool | None, **kwargs: Any) -> Any:
        given = {}
        for name, option, _ in _TEXTS:
            value = kwargs.pop(name.replace("-", "_"))
            if value is not None:
                given[option] = value
        if tls is not None:
            given["tls"] = str(tls).lower()
        try:
            connection = read_connection(Options(given, "headrace-pipeline"))
        except OptionError as error:
            hint = ", ".join(_FLAGS.get(name, name) for name in error.name.split(", "))
            raise click.BadParameter(error.rule, param_hint=hint) from None
        return command(*args, connection=connection, **kwargs)

    decorated: Function = click.option(
        "--tls/--no-tls",
        default=None,
        envvar="HEADRACE_TLS",
        help="whether connections are secured; they are where one of the files is given",
        show_default=False,
    )(wrapped)
    for name, _, text in reversed(_TEXTS):
        variable = "HEADRACE_" + name.upper().replace("-", "_")
        decorated = click.option(
            f"--{name}", default=_DEFAULTS.get(name), envvar=variable, show_envvar=True, help=text
        )(decorated)
    return decorated


def session_options(app_name: str) -> Callable[[Function], Function]:
    """Give a command the options of a Spark session, which it gets as `settings: SessionSettings`.

    Args:
        app_name: what Spark calls the job unless told otherwise.
    """

    def decorate(command: Function) -> Function:
        @functools.wraps(command)
        def wrapped(*args: Any, master: str, conf: tuple[str, ...], name: str, **rest: Any) -> Any:
            settings = SessionSettings(name, master, read_conf(conf))
            return command(*args, settings=settings, **rest)

        decorated: Function = click.option(
            "--app-name", "name", default=app_name, help="of the job on Spark's pages"
        )(wrapped)
        decorated = click.option(
            "--conf",
            multiple=True,
            metavar="NAME=VALUE",
            help="a setting of Spark's; may be repeated",
        )(decorated)
        return click.option(
            "--master",
            default="local[*]",
            envvar="HEADRACE_MASTER",
            show_envvar=True,
            help="where Spark runs: local[N], spark://HOST:PORT, k8s://https://HOST:PORT",
        )(decorated)

    return decorate
