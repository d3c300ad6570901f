"""`headrace perf`: how fast a cluster is, as its clients see it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import click
from aiormq.exceptions import AMQPError

from headrace_broker.cli.load.amqp import AmqpLoad
from headrace_broker.cli.load.plan import BODY_BYTES_MIN, Plan, Tally
from headrace_broker.cli.load.plot import check_plot, draw
from headrace_broker.cli.load.report import Second, Summary, line_of, lines_of
from headrace_broker.cli.load.run import Run
from headrace_broker.cli.session import (
    EXIT_UNAVAILABLE,
    ClientCommand,
    CommandError,
    Session,
    pairs,
    print_json,
)

AMQP_ADDRESS: Final = "127.0.0.1:5672"
BODY_BYTES_MAX: Final = 128 << 20

_count = click.IntRange(0, 1000)


@click.command(cls=ClientCommand)
@click.option("--address", default=AMQP_ADDRESS, show_default=True, help="HOST:PORT for AMQP.")
@click.option("--publishers", type=_count, default=1, show_default=True)
@click.option("--consumers", type=_count, default=1, show_default=True)
@click.option("--queues", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option("--queue", "name", default="headrace-perf", show_default=True, help="Their name.")
@click.option(
    "-a", "--argument", "arguments", multiple=True, metavar="KEY=VALUE", help="Of the queues."
)
@click.option(
    "--size",
    type=click.IntRange(BODY_BYTES_MIN, BODY_BYTES_MAX),
    default=100,
    show_default=True,
    help="Octets of a body.",
)
@click.option(
    "--window",
    type=click.IntRange(0, 100_000),
    default=1000,
    show_default=True,
    help="Unconfirmed messages of a publisher; 0 publishes without confirms.",
)
@click.option(
    "--prefetch",
    type=click.IntRange(0, 65_535),
    default=1000,
    show_default=True,
    help="Unsettled messages of a consumer; 0 consumes without acknowledgements.",
)
@click.option(
    "--rate", type=click.IntRange(0), default=0, help="Messages a second of each publisher."
)
@click.option("--transient", is_flag=True, help="Messages that need not be kept on disk.")
@click.option(
    "--seconds", type=click.FloatRange(1, 86_400), default=10, show_default=True, help="How long."
)
@click.option("--keep", is_flag=True, help="Leave the queues; else they are deleted.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw it there.")
@click.pass_obj
def perf(session: Session, /, **given: Any) -> None:
    """Publish and consume as fast as it goes, and print rates and latencies each second.

    Latency is the time from before a message is sent until after it has come. What waits in the
    queues already is consumed, too.
    """
    if given["plot"] is not None:
        check_plot()
    summary = _measured(session, given)
    if session.as_json:
        print_json(summary)
    else:
        click.echo("\n".join(lines_of(summary)))
    if given["plot"] is not None:
        title = f"{given['publishers']} publishers, {given['consumers']} consumers, AMQP"
        try:
            draw(summary, title, given["plot"])
        except (OSError, ValueError) as error:
            raise click.BadParameter(str(error), param_hint="--plot") from None


def _measured(session: Session, given: dict[str, Any]) -> Summary:
    """Run what the options say.

    Raises:
        CommandError: EXIT_UNAVAILABLE, the listener is not there, or refuses.
    """
    plan = Plan(
        address=given["address"],
        login=session.login,
        vhost=session.vhost,
        queues=tuple(_names(given["name"], given["queues"])),
        publishers=given["publishers"],
        consumers=given["consumers"],
        body_bytes=given["size"],
        window=given["window"],
        rate=given["rate"],
        prefetch=given["prefetch"],
        persistent=not given["transient"],
    )

    def tell(second: Second) -> None:
        if not session.as_json:
            click.echo(line_of(second))

    arguments = pairs("--argument", given["arguments"])
    try:
        return asyncio.run(_run(plan, arguments, given["seconds"], given["keep"], tell))
    except* (OSError, AMQPError) as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        text = f"{plan.address}: {str(first) or type(first).__name__}"
        raise CommandError(text, EXIT_UNAVAILABLE) from None


def _names(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]


async def _run(
    plan: Plan, arguments: dict[str, Any], seconds: float, keep: bool, tell: Any
) -> Summary:
    tally, ended = Tally(), asyncio.Event()
    load = AmqpLoad(plan, tally, ended)
    await load.declare(arguments)
    try:
        return await Run(plan, tally, ended, tell).run(load, seconds)
    finally:
        if not keep:
            await load.delete()
