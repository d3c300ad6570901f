"""When the first of a file's certificates ends."""

from __future__ import annotations

from pathlib import Path

from headrace_broker.runtime.security.tls import stamp


def first_end_s(path: str) -> float:
    """Return when the first certificate of a PEM file ends, in Unix time; OSError, ValueError."""
    from cryptography import x509  # large, and needed here only

    chain = x509.load_pem_x509_certificates(Path(path).read_bytes())
    return min(each.not_valid_after_utc.timestamp() for each in chain)


class CertificateEnd:
    """Remembers it for as long as the file does not change."""

    def __init__(self, path: str) -> None:
        self._path = path  # of a PEM file
        self._stamp: tuple[int, int, int] | None = None
        self._end_s: float | None = None

    def read(self) -> float | None:
        """Return when its first certificate ends; None while it is no readable certificate."""
        now = stamp(self._path)
        if now != self._stamp:
            self._stamp = now
            try:
                self._end_s = first_end_s(self._path)
            except (OSError, ValueError):
                self._end_s = None
        return self._end_s
