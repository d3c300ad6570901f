"""A certificate authority for tests, by the command `openssl`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_NAMES = "DNS:localhost,IP:127.0.0.1"


class Pair(NamedTuple):
    """A certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates into a directory.

    Args:
        directory: for its files.
        name: of the authority, and of its files.
    """

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.file = directory / f"{name}.pem"
        self._directory = directory
        self._key = directory / f"{name}.key"
        _openssl(
            *("req", "-x509", *_KEY, "-keyout", self._key, "-out", self.file, "-days", "30"),
            *("-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE"),
        )

    def sign(
        self,
        subject: str,
        name: str,
        days: int = 30,
        alternative_names: str = _NAMES,
        extensions: str = "",
    ) -> Pair:
        """Make a key and a certificate for it.

        Args:
            subject: as openssl writes it, for instance "/O=x/CN=guest".
            name: of the files.
            days: how long it is valid from now on; less than 0 for one that has expired.
            alternative_names: for instance "DNS:n1,IP:127.0.0.1"; any form that openssl takes.
            extensions: further lines, for instance "extendedKeyUsage=clientAuth".
        """
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        request = self._directory / f"{name}.csr"
        names = self._directory / "names.cnf"
        names.write_text(f"subjectAltName={alternative_names}\n{extensions}\n", encoding="ascii")
        _openssl("req", *_KEY, "-keyout", pair.key, "-out", request, "-subj", subject)
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self._key),
            *("-CAcreateserial", "-days", str(days), "-extfile", names, "-out", pair.certificate),
        )
        return pair

    def revoke(self, *certificates: Path, days: int = 30) -> Path:
        """Write the list of revoked certificates, these and earlier ones, and return its file.

        Args:
            certificates: to revoke.
            days: how long the list is valid; less than 0 for one that has expired.
        """
        database = self._directory / f"{self.file.stem}.index"
        database.touch()
        settings = self._directory / f"{self.file.stem}.cnf"
        settings.write_text(
            f"[ca]\ndefault_ca = x\n[x]\ndatabase = {database}\ndefault_md = sha256\n",
            encoding="ascii",
        )
        ca = ("ca", "-config", settings, "-cert", self.file, "-keyfile", self._key)
        for certificate in certificates:
            _openssl(*ca, "-revoke", certificate)
        revoked = self._directory / f"{self.file.stem}.crl"
        # Seconds take no negative number; what ended long ago has expired as well.
        until = (
            ("-crldays", str(days))
            if days >= 0
            else ("-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200102000000Z")
        )
        _openssl(*ca, "-gencrl", *until, "-out", revoked)
        return revoked


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
