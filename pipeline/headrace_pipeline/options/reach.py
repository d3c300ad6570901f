"""The clients of this process: one for each connection, made when it is first wanted.

gRPC's channels can neither be pickled nor taken through a fork, so each process has its own. They
live as long as it does.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from headrace_client.blocking import Client
from headrace_pipeline.error import PipelineError
from headrace_pipeline.limits import CLIENTS_MAX
from headrace_pipeline.options.connection import Connection, connect

_lock: Final = threading.Lock()
_clients: Final[dict[Connection, Client]] = {}
_owner = 0  # the process whose they are


def client(connection: Connection) -> Client:
    """Return this process's client for a connection.

    Raises:
        OptionError: a file cannot be read.
        HeadraceError: no broker answers, or the log-in is wrong.
        PipelineError: there are CLIENTS_MAX clients.
    """
    global _owner
    with _lock:
        if _owner != os.getpid():
            _clients.clear()
            _owner = os.getpid()
        found = _clients.get(connection)
        if found is None:
            if len(_clients) >= CLIENTS_MAX:
                raise PipelineError(f"a process has at most {CLIENTS_MAX} connections to brokers")
            found = _clients[connection] = connect(connection)
        return found
