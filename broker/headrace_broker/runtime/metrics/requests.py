"""Requests over HTTP and gRPC, counted by labels that do not grow with clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headrace_broker.runtime.metrics.metric import Sample
from headrace_raftlog.model.histogram import Histogram

METHODS: Final = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"})
OTHER: Final = "other"


class HttpMeter:
    """Counts HTTP requests."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], int] = {}
        self._durations: dict[str, Histogram] = {}

    def answered(self, handler: str, method: str, code: int, seconds: float | None) -> None:
        """Count a request.

        Args:
            handler: heading of its route, "" where there is none.
            method: as the client wrote it.
            code: status.
            seconds: how long it took, None for a stream.
        """
        key = (handler or OTHER, method if method in METHODS else OTHER, str(code))
        self._counts[key] = self._counts.get(key, 0) + 1
        if seconds is not None:
            self._durations.setdefault(key[0], Histogram()).observe(int(seconds * 1e6))

    def samples(self) -> Iterator[Sample]:
        """Return the samples."""
        for key, count in self._counts.items():
            yield Sample("http_requests_total", count, key)
        for handler, durations in self._durations.items():
            yield Sample("http_request_duration_seconds", durations, (handler,))


class GrpcMeter:
    """Counts gRPC calls."""

    def __init__(self) -> None:
        self._started: dict[tuple[str, str], int] = {}
        self._ended: dict[tuple[str, ...], int] = {}
        self._durations: dict[str, Histogram] = {}

    def started(self, service: str, method: str) -> None:
        """Count a call that begins; names are those of services that are served."""
        key = (service, method)
        self._started[key] = self._started.get(key, 0) + 1

    def ended(self, service: str, method: str, code: str, seconds: float | None) -> None:
        """Count the end of a call.

        Args:
            service: its full name.
            method: its name.
            code: name of the status.
            seconds: how long it took, None for a stream.
        """
        key = (service, method, code)
        self._ended[key] = self._ended.get(key, 0) + 1
        if seconds is not None:
            self._durations.setdefault(service, Histogram()).observe(int(seconds * 1e6))

    def samples(self) -> Iterator[Sample]:
        """Return the samples."""
        for key, count in self._started.items():
            yield Sample("grpc_calls_started_total", count, key)
        for each, count in self._ended.items():
            yield Sample("grpc_calls_total", count, each)
        for service, durations in self._durations.items():
            yield Sample("grpc_call_duration_seconds", durations, (service,))
