"""Start of message tracing, if the configuration enables it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from headrace_broker.config.configuration import Config, ConfigError
from headrace_broker.runtime.contract.trace_port import TRACING
from headrace_broker.runtime.tracing.context import ContextReader
from headrace_broker.runtime.tracing.tracing import SpanTracer

if TYPE_CHECKING:
    from headrace_broker.runtime.tracing.export import Exporter

log = logging.getLogger("headrace.node")


def trace(config: Config, stack: contextlib.AsyncExitStack) -> None:
    """Have messages traced from now on, until the stack is closed.

    Raises:
        ConfigError: there is to be tracing, and what it needs is not installed.
    """
    endpoint = config.tracing.endpoint
    if not endpoint:
        return
    exporter = _exporter(config)

    async def stop() -> None:
        TRACING.tracer = None
        await asyncio.to_thread(exporter.close)

    stack.push_async_callback(stop)
    TRACING.tracer = SpanTracer(exporter, ContextReader(config.tracing.ratio))
    log.info("exporting message spans to %s", endpoint)


def _exporter(config: Config) -> Exporter:
    try:
        from headrace_broker.runtime.tracing.export import Exporter  # of an extra
    except ImportError as error:
        raise ConfigError(
            f"tracing.endpoint: needs the extra [otel] (pip install 'headrace[otel]'): {error}"
        ) from error
    return Exporter(config)
