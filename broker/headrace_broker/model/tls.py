"""Facts about a client connection's TLS."""

from __future__ import annotations

from typing import final


@final
class TlsSession:
    """One connection's TLS, as agreed in its handshake."""

    def __init__(
        self,
        version: str,
        cipher: str,
        subject: str = "",
        issuer: str = "",
        not_after: str = "",
        login: str = "",
        external: bool = False,
    ) -> None:
        self.version = version  # for instance "TLSv1.3"
        self.cipher = cipher  # name of the cipher suite
        # of the client's certificate that was verified, in the form of RFC 4514; "" when it showed
        # none or was not asked for one
        self.subject = subject
        self.issuer = issuer  # likewise, of who signed it
        self.not_after = not_after  # when that certificate ends, as OpenSSL writes it, or ""
        self.login = login  # the user that the certificate stands for, "" for none
        self.external = external  # clients may log in by their certificates (SASL EXTERNAL)
