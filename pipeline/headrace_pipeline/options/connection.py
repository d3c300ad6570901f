"""Connection of sources and sinks; values hold no secret, can be pickled and printed."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from headrace_client.blocking import Client
from headrace_client.endpoint import Tls, parse_endpoints
from headrace_pipeline.error import OptionError
from headrace_pipeline.limits import SECRET_BYTES_MAX
from headrace_pipeline.options.option import Options

_IN_PLANS: Final = (
    "would stand in query plans, event logs and the web page: write it to a file that all "
    "processes can read, and give its path as passwordFile"
)


class Connection(NamedTuple):
    """Addresses of brokers, and the user."""

    endpoints: str  # HOST:PORT with commas
    vhost: str = "/"  # of queues and exchanges
    username: str | None = "guest"  # None for who is known by a certificate
    password_file: str | None = None  # with the password in its first line; None for `guest`'s
    tls: bool = False  # whether connections are secured
    ca_file: str | None = None  # PEM of authorities; so are the next two PEM of the client's own
    cert_file: str | None = None  # None for none
    key_file: str | None = None  # likewise
    server_name: str | None = None  # that brokers' certificates have instead of the endpoints'

    def options(self) -> dict[str, str]:
        """Return the options that sources and sinks take for it; `read_connection` reads them."""
        given = {
            "endpoints": self.endpoints,
            "vhost": self.vhost,
            "username": self.username,
            "passwordFile": self.password_file,
            "tls": str(self.tls).lower(),
            "tlsCaFile": self.ca_file,
            "tlsCertFile": self.cert_file,
            "tlsKeyFile": self.key_file,
            "tlsServerName": self.server_name,
        }
        return {name: value for name, value in given.items() if value is not None}


def read_connection(options: Options) -> Connection:
    """Take the options of a connection; files are read by each process when it connects.

    Raises:
        OptionError: one is wrong.
    """
    options.refuse("password", _IN_PLANS)
    endpoints = options.text("endpoints")
    try:
        parse_endpoints(endpoints)
    except ValueError as error:
        raise OptionError("endpoints", str(error).removeprefix("endpoints: ")) from None
    ca_file = options.text("tlsCaFile", "") or None
    cert_file = options.text("tlsCertFile", "") or None
    key_file = options.text("tlsKeyFile", "") or None
    server_name = options.text("tlsServerName", "") or None
    tls = options.flag("tls", bool(ca_file or cert_file))
    if not tls and (ca_file or cert_file or key_file or server_name):
        raise OptionError("tls", "must be true where tlsCaFile, tlsCertFile, ... are given")
    if (cert_file is None) != (key_file is None):
        missing = "tlsCertFile" if cert_file is None else "tlsKeyFile"
        raise OptionError(missing, "tlsCertFile and tlsKeyFile must be given together")
    password_file = options.text("passwordFile", "") or None
    username = options.text("username", "" if cert_file else "guest") or None
    if username not in (None, "guest") and password_file is None:
        raise OptionError("passwordFile", f"the log-in of {username!r} needs it")
    return Connection(
        endpoints,
        options.text("vhost", "/"),
        username,
        password_file,
        tls,
        ca_file,
        cert_file,
        key_file,
        server_name,
    )


def read_secret(path: str) -> str:
    """Return the first line of a file.

    Raises:
        OptionError: it cannot be read, or is no password.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(SECRET_BYTES_MAX + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError("passwordFile", f"{path} cannot be read: {error}") from None
    if len(data) > SECRET_BYTES_MAX:
        raise OptionError("passwordFile", f"{path} is larger than {SECRET_BYTES_MAX} bytes")
    first = text.splitlines()[0] if text else ""
    if not first:
        raise OptionError("passwordFile", f"{path} has no first line")
    return first


def connect(connection: Connection) -> Client:
    """Return a new client; `headrace_pipeline.options.reach.client` has one that a process shares.

    Raises:
        OptionError: a file cannot be read.
        HeadraceError: no broker answers, or the log-in is wrong.
    """
    password = "guest"  # noqa: S105 - everybody knows it, and it works on loopback only
    if connection.password_file is not None:
        password = read_secret(connection.password_file)
    tls = None
    if connection.tls:
        files = connection.ca_file, connection.cert_file, connection.key_file
        tls = Tls(*files, connection.server_name)
    try:
        return Client.connect(
            connection.endpoints,
            user=connection.username,
            password=password,
            vhost=connection.vhost,
            tls=tls,
        )
    except OSError as error:
        raise OptionError("tlsCaFile, tlsCertFile or tlsKeyFile", str(error)) from None
