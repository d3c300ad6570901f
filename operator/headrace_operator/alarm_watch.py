"""Alarms of clusters, followed as they come: what looks at alarms now and then looks at once.

A message is only a reason to look: what the alarms are is asked of the HTTP API as ever, which is
also what goes on while nothing can be followed.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import grpc.aio

from headrace_operator.reconciler import Key

METHOD: Final = "/headrace.broker.v1.Flow/WatchAlarms"
ALARMS: Final = b"\x0a"  # first byte of a message that has any; a heartbeat has none
SILENCE_SECONDS: Final = 60.0  # without as much as a heartbeat, until a node counts as dead
AGAIN_SECONDS: Final = 10.0  # until a node is followed again after one could not be

log = logging.getLogger(__name__)


class _Followed(NamedTuple):
    """A cluster that is followed, or was until a moment ago."""

    task: asyncio.Task[None]
    began: float  # of the loop's time


class AlarmWatches:
    """Follows the alarms of clusters, each through one of its nodes.

    Args:
        changed: called with a cluster whose alarms have changed.
    """

    def __init__(self, changed: Callable[[Key], None]) -> None:
        self._changed = changed
        self._followed: dict[Key, _Followed] = {}

    def follow(self, key: Key, target: str, login: tuple[str, str]) -> None:
        """Follow a cluster, unless that is done already, or was tried a moment ago.

        Args:
            key: which cluster.
            target: HOST:PORT of a node's gRPC API.
            login: name and password.
        """
        now = asyncio.get_running_loop().time()
        before = self._followed.get(key)
        if before is not None and (not before.task.done() or now - before.began < AGAIN_SECONDS):
            return
        task = asyncio.create_task(self._follow(key, target, login), name=f"alarms {key.name}")
        self._followed[key] = _Followed(task, now)

    def forget(self, key: Key) -> None:
        """Follow a cluster no more."""
        found = self._followed.pop(key, None)
        if found is not None:
            found.task.cancel()

    async def stop(self) -> None:
        """Stop following alarms."""
        tasks = [each.task for each in self._followed.values()]
        self._followed.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, key: Key, target: str, login: tuple[str, str]) -> None:
        text = base64.b64encode(":".join(login).encode()).decode()
        metadata = (("authorization", f"Basic {text}"),)
        try:
            async with grpc.aio.insecure_channel(target) as channel:
                method = channel.unary_stream(METHOD, bytes, bytes)
                await self._read(key, method(b"", metadata=metadata))
        except (grpc.RpcError, TimeoutError) as error:
            why = error.code().name if isinstance(error, grpc.aio.AioRpcError) else "silent"
            log.info("cluster %s/%s: alarms through %s: %s", *key, target, why)

    async def _read(self, key: Key, call: Any) -> None:
        """Read until the stream ends.

        Raises:
            TimeoutError: nothing comes.
            grpc.RpcError: the node refuses, or is gone.
        """
        messages = aiter(call)
        while True:
            async with asyncio.timeout(SILENCE_SECONDS):
                message = await anext(messages, None)
            if message is None:
                return
            if message[:1] == ALARMS:
                self._changed(key)
