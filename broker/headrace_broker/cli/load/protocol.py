"""Protocols of commands: AMQP, or gRPC where its client is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple, Protocol

import click

from headrace_broker.cli.load.load_client import LoadClient
from headrace_broker.cli.load.plan import Plan, Tally
from headrace_broker.cli.load.run import Load
from headrace_broker.cli.session.client_tls import ClientTls
from headrace_broker.cli.session.session import EXIT_UNAVAILABLE, CommandError

AMQP: Final = "amqp"
GRPC: Final = "grpc"
AMQP_ADDRESS: Final = "127.0.0.1:5672"
AMQPS_ADDRESS: Final = "127.0.0.1:5671"
GRPC_ADDRESS: Final = "127.0.0.1:7672"
GRPCS_ADDRESS: Final = "127.0.0.1:7671"

protocol_option = click.option(
    "--protocol", type=click.Choice([AMQP, GRPC]), default=AMQP, show_default=True
)
address_option = click.option(
    "--address",
    metavar="HOST:PORT",
    help=f"Of a node's listener for that; with grpc also several, joined by commas.  "
    f"[{AMQP_ADDRESS}, {GRPC_ADDRESS}; with TLS {AMQPS_ADDRESS}, {GRPCS_ADDRESS}]",
)


class PlannedLoad(Load, Protocol):
    """A load that brings the queues of its plan."""

    async def declare(self, arguments: dict[str, object]) -> None:
        """Declare the queues of the plan."""

    async def delete(self) -> None:
        """Delete the queues of the plan."""


class Wire(NamedTuple):
    """A protocol."""

    name: str  # for people
    address: str  # where a node listens unless it is told otherwise
    tls_address: str  # and where for TLS
    load: Callable[[Plan, Tally, asyncio.Event], PlannedLoad]  # makes what a plan wants
    # opens a connection for single messages: address, log-in, vhost and TLS
    client: Callable[
        [str, tuple[str, str], str, ClientTls | None], AbstractAsyncContextManager[LoadClient]
    ]
    errors: tuple[type[BaseException], ...]  # that either may end with
    failure: Callable[[BaseException], tuple[str, int]]  # text and exit code of one

    def address_for(self, given: str | None, tls: ClientTls | None) -> str:
        """Return the address that is asked for, or the one that goes without saying."""
        return given or (self.address if tls is None else self.tls_address)

    def command_error(self, address: str, error: BaseException) -> CommandError:
        """Return how a command ends for an error, or for the first one in a group."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        text, exit_code = self.failure(error)
        where = f"{address}: " if exit_code == EXIT_UNAVAILABLE else ""
        return CommandError(where + text, exit_code)


def wire_of(protocol: str) -> Wire:
    """Return a protocol by its name; click.ClickException where its library is not installed."""
    if protocol == GRPC:
        return _grpc()
    from headrace_broker.cli.load import amqp, amqp_client

    parts: tuple[Any, ...] = (amqp.AmqpLoad, amqp_client.open_client, amqp.ERRORS, amqp.failure)
    return Wire("AMQP", AMQP_ADDRESS, AMQPS_ADDRESS, *parts)


def _grpc() -> Wire:
    try:
        import headrace_client  # noqa: F401
    except ImportError:
        how = "pip install 'headrace[client]', or ./protos ./client of a checkout"
        raise click.ClickException(f"--protocol grpc needs the Python client: {how}") from None
    from headrace_broker.cli.load import grpc, grpc_client

    more: tuple[Any, ...] = (grpc.GrpcLoad, grpc_client.open_client, grpc.ERRORS, grpc.failure)
    return Wire("gRPC", GRPC_ADDRESS, GRPCS_ADDRESS, *more)
