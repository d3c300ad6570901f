"""`headrace serve`: one node, until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path

import click
import uvloop

from headrace_broker.cli import log_format, shards
from headrace_broker.config.configuration import Config, ConfigError, load_config, split_address
from headrace_broker.config.shards import count_problem, shard_config, shard_count
from headrace_broker.logs.log_event import NODE_STOPPED, log_event
from headrace_broker.management.http.request_id import record_requests
from headrace_broker.model import build_info
from headrace_raftlog.model.errors import (
    DamageFoundError,
    ForgottenError,
    IdentityError,
    LogLockedError,
    RaftLogError,
)

Beat = Callable[[asyncio.Event], Coroutine[None, None, None]]

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
@click.option("--shard", type=int, hidden=True, help="Be this process of a node that has several.")
@click.option("--shards", "count", type=int, hidden=True, help="So many has it.")
@click.option("--supervisor", type=int, default=0, hidden=True, help="Pid of who started it.")
@click.option("--heartbeats", type=int, hidden=True, help="File descriptor for its heartbeats.")
def serve(
    path: Path | None,
    log_level: str,
    shard: int | None,
    count: int | None,
    supervisor: int,
    heartbeats: int | None,
) -> None:
    """Run one node. SIGTERM and SIGINT stop it cleanly; SIGHUP has certificates read anew."""
    record_requests()
    log_format.begin(log_level)
    try:
        config = load_config(path, os.environ)
        if shard is None or count is None:
            shard, count = None, shard_count(config)
            problem = count_problem(config, count)
            if problem:
                raise ConfigError(problem)
        else:
            shards.end_with(supervisor)
        config = shard_config(config, shard or 0, count)
        log_format.set_up(config.logging, config.node.name if count > 1 else "")
    except ConfigError as error:
        raise _refused(error, shard) from None
    if count > 1 and shard is None:
        _supervise(config, path, log_level, count)
        return
    if not build_info.compiled():
        logger.warning("the hot path is not compiled: this node is several times slower")
    beat = None if heartbeats is None else partial(shards.beat, heartbeats, shard or 0)
    try:
        while _run(config, beat):
            pass
    except ConfigError as error:
        raise _refused(error, shard) from None
    except (RaftLogError, OSError) as error:
        logger.critical("%s: %s", type(error).__name__, error)
        text = f"node {config.node.name} cannot go on: {error}"
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        if shard is not None and (taken or isinstance(error, LogLockedError | IdentityError)):
            raise _ShardRefusal(text) from error
        raise click.ClickException(text) from error


class _ShardRefusal(click.ClickException):
    """Ends all processes of a node, at the first start of one."""

    exit_code = shards.REFUSED


def _refused(error: ConfigError, shard: int | None) -> click.ClickException:
    kind = click.ClickException if shard is None else _ShardRefusal
    return kind(str(error))


def _supervise(config: Config, path: Path | None, log_level: str, count: int) -> None:
    command = [sys.executable, "-P", "-m", "headrace_broker.cli", "serve", "--log-level", log_level]
    if path is not None:
        command += ["--config", str(path)]
    try:
        for address in filter(None, config.listeners.shared()):
            shards.check_unshared(*split_address(address))
    except OSError as error:
        raise click.ClickException(f"node {config.node.name} cannot go on: {error}") from error
    status = asyncio.run(shards.ShardSupervisor(config.node.name, command, count).run())
    if status:
        sys.exit(status)
    log_event(logger, NODE_STOPPED, node=config.node.name)


def _run(config: Config, beat: Beat | None) -> bool:
    """Run the node; return whether it is to start again: its data are set aside, or damaged."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, beat))
    except ForgottenError:
        logger.warning("node %s restarts without its former data (set aside)", config.node.name)
        return True
    except DamageFoundError:
        logger.warning("node %s restarts to repair damaged data", config.node.name)
        return True
    return False


async def _serve(config: Config, beat: Beat | None) -> None:
    from headrace_broker import app  # brings grpc and all the rest, which `version` does without

    gc.collect()
    gc.freeze()  # what was imported stays: no search for garbage needs to pass it
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    hang_up = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, hang_up.set)
    serving = asyncio.Event()
    beating = None if beat is None else loop.create_task(beat(serving), name="heartbeats")
    await app.serve(config, stop, hang_up, serving)
    if beating is not None:
        beating.cancel()
    log_event(logger, NODE_STOPPED, node=config.node.name)
