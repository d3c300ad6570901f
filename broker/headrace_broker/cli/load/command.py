"""`headrace perf`: how fast a cluster is, as its clients see it."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any, Final

import click

from headrace_broker.cli.load.plan import BODY_BYTES_MIN, Plan, Tally
from headrace_broker.cli.load.plot import check_plot, draw
from headrace_broker.cli.load.protocol import Wire, address_option, protocol_option, wire_of
from headrace_broker.cli.load.report import Second, Summary, line_of, lines_of
from headrace_broker.cli.load.run import Run
from headrace_broker.cli.session.progress import gauge
from headrace_broker.cli.session.session import ClientCommand, Session, pairs, print_json

BODY_BYTES_MAX: Final = 128 << 20

_count = click.IntRange(0, 1000)


@click.command(cls=ClientCommand)
@protocol_option
@address_option
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
    help="Bytes of a body.",
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
def perf(session: Session, /, **given: Any) -> None:
    """Publish and consume as fast as it goes, and print rates and latencies each second.

    Latency is the time from before a message is sent until after it has come. What waits in the
    queues already is consumed, too.
    """
    if given["plot"] is not None:
        check_plot()
    wire = wire_of(given["protocol"])
    summary = _measured(session, wire, given)
    if session.as_json:
        print_json(summary)
    else:
        click.echo("\n".join(lines_of(summary)))
    if given["plot"] is not None:
        title = f"{given['publishers']} publishers, {given['consumers']} consumers, {wire.name}"
        try:
            draw(summary, title, given["plot"])
        except (OSError, ValueError) as error:
            raise click.BadParameter(str(error), param_hint="--plot") from None


def _measured(session: Session, wire: Wire, given: dict[str, Any]) -> Summary:
    """Run what the options say; CommandError where the listener is not there, or refuses."""
    plan = Plan(
        address=wire.address_for(given["address"], session.tls),
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
        tls=session.tls,
    )

    arguments = pairs("--argument", given["arguments"])
    tally, ended = Tally(), asyncio.Event()
    load = wire.load(plan, tally, ended)

    async def run() -> Summary:
        await load.declare(arguments)
        try:
            with gauge(f"{wire.name}, {plan.address}", session.as_json) as shown:
                shown.reach(0, given["seconds"])

                def tell(second: Second) -> None:
                    shown.reach(min(second.at_s, given["seconds"]), given["seconds"])
                    if not session.as_json:
                        click.echo(line_of(second))

                return await Run(plan, tally, ended, tell).run(load, given["seconds"])
        finally:
            if not given["keep"]:
                await load.delete()

    gc.freeze()  # what was imported stays: no search for garbage needs to pass it
    try:
        return asyncio.run(run())
    except* wire.errors as group:
        raise wire.command_error(plan.address, group) from None


def _names(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]
