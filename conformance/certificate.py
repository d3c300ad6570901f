"""Certificates for a broker's TLS listener and its clients, made with openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from msgspec import Struct

DAYS: Final = "30"  # a run takes minutes; made anew for each
KEY: Final = ("-newkey", "rsa:2048", "-nodes", "-batch")
CLIENT: Final = "client"
STRANGER: Final = "stranger"  # a client whose authority the broker does not know


class Certificates(Struct, frozen=True):
    """Files of a TLS listener: its authorities, and its certificate."""

    authority: Path
    server: Path
    server_key: Path


def openssl(*arguments: str) -> None:
    """Run openssl; its output is in the exception."""
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True)


def make_authority(folder: Path, name: str) -> None:
    """Write NAME.pem and NAME.key, an authority."""
    key, certificate = str(folder / f"{name}.key"), str(folder / f"{name}.pem")
    files = ["-keyout", key, "-out", certificate]
    openssl("req", "-x509", *KEY, *files, "-days", DAYS, "-subj", f"/CN={name}")


def make_certificate(folder: Path, name: str, authority: str, host: str) -> None:
    """Write NAME.pem and NAME.key, signed by an authority of the same folder."""
    key, request = str(folder / f"{name}.key"), str(folder / f"{name}.csr")
    openssl("req", *KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    extensions = folder / "extensions"
    names = f"subjectAltName=DNS:localhost,IP:127.0.0.1,IP:{host}\n"
    extensions.write_text(names, encoding="utf-8")
    signer = ["-CA", str(folder / f"{authority}.pem"), "-CAkey", str(folder / f"{authority}.key")]
    output = ["-out", str(folder / f"{name}.pem"), "-extfile", str(extensions)]
    openssl("x509", "-req", "-in", request, *signer, "-CAcreateserial", "-days", DAYS, *output)


def make_certificates(folder: Path, host: str) -> Certificates:
    """Make an authority with a server at a host and a client, and a stranger, in a folder.

    Returns:
        What the broker needs; client.pem, client.key, stranger.pem and stranger.key lie beside.
    """
    folder.mkdir(parents=True, exist_ok=True)
    make_authority(folder, "authority")
    make_certificate(folder, "server", "authority", host)
    make_certificate(folder, CLIENT, "authority", host)
    make_authority(folder, "other")
    make_certificate(folder, STRANGER, "other", host)
    return Certificates(folder / "authority.pem", folder / "server.pem", folder / "server.key")
