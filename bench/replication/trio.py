"""Three processes that a benchmark drives, one node each."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

NODES: Final = (1, 2, 3)
ANSWER_SECONDS_MAX: Final = 180  # a node that says nothing for so long has failed


class WorkerError(Exception):
    """A node failed; the text has its output."""


class Place(NamedTuple):
    """Place of one node: its number of NODES, and the shared settings."""

    node: int
    base_port: int
    directory: Path

    @property
    def peers(self) -> dict[int, str]:
        """Addresses of all nodes."""
        return {node: f"127.0.0.1:{self.base_port + node}" for node in NODES}

    @property
    def data(self) -> Path:
        """Directory of this node alone."""
        return self.directory / f"node{self.node}"


Worker = Callable[[Place, Connection], None]


class Trio:
    """Processes that answer requests: a tuple of a name and arguments, by any one value.

    A worker that fails answers with an exception.

    Args:
        worker: run in each process; returns once it is told ("stop",).
        base_port: node n listens on base_port + n.
        directory: of the run; removed by whoever made it.
    """

    def __init__(self, worker: Worker, base_port: int, directory: Path) -> None:
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # nodes that are stopped are no news
        context = multiprocessing.get_context("spawn")
        self._processes: list[multiprocessing.process.BaseProcess] = []
        self._connections: dict[int, Connection] = {}
        for node in NODES:
            place = Place(node, base_port, directory)
            place.data.mkdir(parents=True, exist_ok=True)
            here, there = context.Pipe()
            process = context.Process(target=worker, args=(place, there), daemon=True)
            process.start()
            there.close()
            self._processes.append(process)
            self._connections[node] = here

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node, process in zip(NODES, self._processes, strict=True):
            if kind is None:
                self._connections[node].send(("stop",))
                process.join(ANSWER_SECONDS_MAX)
            process.kill()
            process.join()

    @property
    def pids(self) -> list[int]:
        """Process ids by node."""
        return [process.pid for process in self._processes if process.pid is not None]

    def ask(self, node: int, *request: Any) -> Any:
        """Send a request to one node and return its answer.

        Raises:
            WorkerError: it failed, or did not answer in time.
        """
        return self.ask_some({node: request})[node]

    def find(self, *request: Any) -> int:
        """Ask all nodes the same until one of them alone answers with something true; return it.

        Raises:
            WorkerError: one failed, or did not answer in time.
        """
        found: list[int] = []
        while len(found) != 1:
            found = [node for node, answer in self.ask_all(*request).items() if answer]
        return found[0]

    def ask_all(self, *request: Any) -> dict[int, Any]:
        """Send the same request to all nodes at once and return their answers.

        Raises:
            WorkerError: one failed, or did not answer in time.
        """
        return self.ask_some(dict.fromkeys(NODES, request))

    def ask_some(self, requests: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Send each node its request, then return their answers.

        Raises:
            WorkerError: one failed, or did not answer in time.
        """
        for node, request in requests.items():
            self._connections[node].send(request)
        return {node: self._answer(node, request[0]) for node, request in requests.items()}

    def _answer(self, node: int, what: str) -> Any:
        connection = self._connections[node]
        ended = [process.sentinel for process in self._processes]
        ready = wait([connection, *ended], ANSWER_SECONDS_MAX)
        if connection not in ready:
            why = "a node ended" if ready else f"no answer in {ANSWER_SECONDS_MAX} s"
            raise WorkerError(f"node {node} was asked to {what}: {why}")
        try:
            answer = connection.recv()
        except (EOFError, ConnectionError) as error:
            raise WorkerError(f"node {node} ended while it was asked to {what}") from error
        if isinstance(answer, BaseException):
            raise WorkerError(f"node {node} failed to {what}: {answer!r}") from answer
        return answer
