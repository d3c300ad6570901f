"""`headrace serve`: one node, until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from pathlib import Path

import click
import uvloop

from headrace_broker.cli import log_format
from headrace_broker.config.configuration import Config, ConfigError, load_config
from headrace_broker.logs.log_event import NODE_STOPPED, log_event
from headrace_broker.management.http.request_id import record_requests
from headrace_broker.model import build_info
from headrace_raftlog.model.errors import DamageFoundError, ForgottenError, RaftLogError

logger = logging.getLogger("headrace.node")


@click.command()
@click.option(
    "--config",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="HEADRACE_CONFIG",
    help="TOML file; without one the HEADRACE_* variables say everything.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
def serve(path: Path | None, log_level: str) -> None:
    """Run one node. SIGTERM and SIGINT stop it cleanly; SIGHUP has certificates read anew."""
    record_requests()
    log_format.begin(log_level)
    try:
        config = load_config(path, os.environ)
        log_format.set_up(config.logging)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    if not build_info.compiled():
        logger.warning("the hot path is not compiled: this node is several times slower")
    try:
        while _run(config):
            pass
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    except (RaftLogError, OSError) as error:
        logger.critical("%s: %s", type(error).__name__, error)
        raise click.ClickException(f"node {config.node.name} cannot go on: {error}") from error


def _run(config: Config) -> bool:
    """Run the node; return whether it is to start again: its data are set aside, or damaged."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config))
    except ForgottenError:
        logger.warning("node %s restarts without its former data (set aside)", config.node.name)
        return True
    except DamageFoundError:
        logger.warning("node %s restarts to repair damaged data", config.node.name)
        return True
    return False


async def _serve(config: Config) -> None:
    from headrace_broker import app  # brings grpc and all the rest, which `version` does without

    gc.collect()
    gc.freeze()  # what was imported stays: no search for garbage needs to pass it
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    hang_up = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, hang_up.set)
    await app.serve(config, stop, hang_up)
    log_event(logger, NODE_STOPPED, node=config.node.name)
