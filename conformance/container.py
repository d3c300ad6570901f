"""Answers as a Docker daemon does, for suites that start their brokers as containers.

Whatever image is asked for, a container is a broker of the kind under test, on fresh data. Of the
API there is what such suites use: create, start, inspect, stop, kill, remove, and the execution of
`rabbitmqctl stop_app` and `start_app` within a container.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Final

from conformance.broker import Broker, BrokerError

DAEMON_PORT: Final = 2375  # Docker's own
CONTROLS: Final = ("stop_app", "start_app")


class Daemon:
    """Keeps the containers, and serves the API at a host while the context is entered.

    Args:
        host: where to listen; suites look for the containers' ports at the same host.
        make: gives the n-th broker, not started.
    """

    def __init__(self, host: str, make: Callable[[int], Broker]) -> None:
        self._make = make
        self._made = 0
        self._lock = threading.Lock()
        self.brokers: dict[str, Broker] = {}
        handler = type("Handler", (Handler,), {"daemon": self})
        self._server = ThreadingHTTPServer((host, DAEMON_PORT), handler)
        self.url = f"tcp://{host}:{DAEMON_PORT}"

    def __enter__(self) -> Daemon:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        for name in list(self.brokers):
            self.remove(name)

    def create(self) -> str:
        """Make a container and return its name."""
        with self._lock:
            name = f"broker{self._made}"
            self.brokers[name] = self._make(self._made)
            self._made += 1
        return name

    def remove(self, name: str) -> None:
        """Remove a container and its content."""
        self.brokers.pop(name).remove()

    def inspect(self, name: str) -> dict[str, Any]:
        """Say where the ports of a container are."""
        place = self.brokers[name].address
        ports = {"5672/tcp": place.port, "5671/tcp": place.tls_port}
        bindings = {
            inner: [{"HostIp": place.host, "HostPort": str(outer)}]
            for inner, outer in ports.items()
        }
        return {"Id": name, "NetworkSettings": {"Ports": bindings}}

    def control(self, name: str, command: list[str]) -> None:
        """Run a command in a container.

        Raises:
            BrokerError: it is none of CONTROLS.
        """
        if command[:1] != ["rabbitmqctl"] or command[1] not in CONTROLS:
            raise BrokerError(f"unknown command: {command}")
        if command[1] == "stop_app":
            self.brokers[name].stop()
        else:
            self.brokers[name].start()


class Handler(BaseHTTPRequestHandler):
    """One request to the daemon."""

    daemon: ClassVar[Daemon]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: the suites' output is what matters."""

    def _answer(self, status: HTTPStatus, body: object = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        try:
            self._answer(*self._act(f"{self.command} {self.path}", body))
        except BrokerError as error:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"message": str(error)})
        except KeyError as error:
            self._answer(HTTPStatus.NOT_FOUND, {"message": f"no such container: {error}"})

    do_GET = do_POST = do_DELETE = _handle  # noqa: N815

    def _act(self, request: str, body: dict[str, Any]) -> tuple[HTTPStatus, object]:
        """Do what a request says, and return status and body of the answer."""
        if request.startswith("POST /images/create"):
            return HTTPStatus.OK, {}
        if request.startswith("POST /containers/create"):
            return HTTPStatus.CREATED, {"Id": self.daemon.create()}
        if re.fullmatch(r"POST /exec/\w+/start", request):
            return HTTPStatus.OK, {}  # it ran when it was made
        if re.fullmatch(r"GET /exec/\w+/json", request):
            return HTTPStatus.OK, {"Running": False, "ExitCode": 0}
        match = re.match(r"(\w+) /containers/(\w+)(?:/(\w+))?", request)
        if match is None:
            return HTTPStatus.NOT_FOUND, {"message": f"not known here: {request}"}
        method, name, verb = match.groups()
        return self._act_on(self.daemon.brokers[name], name, verb or method, body)

    def _act_on(
        self, broker: Broker, name: str, verb: str, body: dict[str, Any]
    ) -> tuple[HTTPStatus, object]:
        match verb:
            case "start":
                broker.start()
            case "stop":
                broker.stop()
            case "kill":
                broker.kill()
            case "DELETE":
                self.daemon.remove(name)
            case "json":
                return HTTPStatus.OK, self.daemon.inspect(name)
            case "exec":
                self.daemon.control(name, body["Cmd"])
                return HTTPStatus.CREATED, {"Id": "done"}
            case _:
                return HTTPStatus.NOT_FOUND, {"message": f"not known here: {verb}"}
        return HTTPStatus.NO_CONTENT, None
