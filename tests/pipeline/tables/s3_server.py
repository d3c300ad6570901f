"""An object store that speaks S3, in a process of its own on the loopback interface.

It runs beside the tests and not in them: `deltalake` keeps Python from going on while it waits.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

BUCKET: Final = "lake"
CONTESTED: Final = f"/contested/_delta_log/{2:020d}.json"  # an entry that two write at once
GATE_SECONDS: Final = 60.0  # that the first one waits for the second
_ANSWERED: Final = re.compile(r'"\S*?([A-Z]+) (\S+) HTTP/[\d.]+\S*" (\d+)')


class ObjectStore:
    """A store that runs.

    Args:
        port: it listens on.
        folder: for its log, and for files with options.
    """

    def __init__(self, port: int, folder: Path) -> None:
        self._port = port
        self._folder = folder

    def options_file(self, name: str = "options.json", **more: str) -> str:
        """Return the path of a file with the options by which it is reached."""
        found = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "hidden",
        }
        path = self._folder / name
        path.write_text(json.dumps(found | more), encoding="utf-8")
        return str(path)

    def answered(self, method: str, status: int) -> list[str]:
        """Return the paths of all requests that were answered so."""
        text = (self._folder / "log").read_text(encoding="utf-8")
        return [
            path
            for verb, path, code in _ANSWERED.findall(text)
            if (verb, code) == (method, f"{status}")
        ]


@contextmanager
def running(folder: Path) -> Iterator[ObjectStore]:
    """Run a store with one bucket, which forgets all when it ends."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            port = process.stdout.readline()
            assert port, (folder / "log").read_text(encoding="utf-8")
            try:
                yield ObjectStore(int(port), folder)
            finally:
                process.stdin.close()
                assert process.wait() == 0


def serve() -> None:
    """Serve on a port that is printed, until standard input ends."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from moto.s3.models import s3_backends
    from werkzeug.serving import make_server

    s3_backends["123456789012"]["aws"].create_bucket(BUCKET, "us-east-1")
    application = gated(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(server.server_port, flush=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    sys.stdin.read()
    server.shutdown()
    thread.join()
    server.server_close()


def gated(application: Any) -> Any:
    """Make the first two writers of `CONTESTED` write at once: neither has seen the other's."""
    gate = threading.Barrier(2)

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].endswith(CONTESTED):
            gate.wait(GATE_SECONDS)
        return application(environ, start_response)

    return answer


if __name__ == "__main__":
    serve()
