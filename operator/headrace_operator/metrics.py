"""Figures of the operator, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web

_HELP: Final = {
    "reconciles": "Reconciles of resources.",
    "reconcile_failures": "Reconciles that failed, and were tried again.",
    "steps": "Steps of changes of clusters that were carried out.",
    "scalings": "Changes of the number of consumers.",
}
_CONTENT_TYPE: Final = "text/plain; version=0.0.4"


class Metrics:
    """Counts what the operator does.

    What is counted is told apart by kinds, actions and reasons only, of which there are few.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], int] = {}
        self._gauges: dict[str, Callable[[], int]] = {}

    def count(self, name: str, label: str, value: str) -> None:
        """Count one more.

        Args:
            name: one of those that have a sentence.
            label: by which they are told apart.
            value: of the label.
        """
        key = (name, label, value)
        self._counts[key] = self._counts.get(key, 0) + 1

    def resources(self, kind: str, number: Callable[[], int]) -> None:
        """Say how many resources of a kind there are."""
        self._gauges[kind] = number

    def exposition(self) -> str:
        """Return all figures as text."""
        lines = []
        for name, text in _HELP.items():
            whole = f"headrace_operator_{name}_total"
            lines += [f"# HELP {whole} {text}", f"# TYPE {whole} counter"]
            for (each, label, value), count in sorted(self._counts.items()):
                if each == name:
                    lines.append(f'{whole}{{{label}="{value}"}} {count}')
        whole = "headrace_operator_resources"
        lines += [f"# HELP {whole} Resources that are looked after.", f"# TYPE {whole} gauge"]
        lines += [f'{whole}{{kind="{kind}"}} {get()}' for kind, get in sorted(self._gauges.items())]
        return "\n".join(lines) + "\n"


class MetricServer:
    """Answers Prometheus.

    Args:
        metrics: what is answered.
        port: of all addresses of the pod; 0 for nowhere.
    """

    def __init__(self, metrics: Metrics, port: int) -> None:
        self._metrics = metrics
        self._port = port
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Begin to answer.

        Raises:
            OSError: the port is somebody else's.
        """
        if not self._port:
            return
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, None, self._port).start()

    async def stop(self) -> None:
        """Answer no more."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        del request
        text = self._metrics.exposition()
        return web.Response(text=text, headers={"Content-Type": _CONTENT_TYPE})
