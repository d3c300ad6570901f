"""Facts about a client connection's TLS."""

from __future__ import annotations

from typing import final


@final
class TlsSession:
    """One connection's TLS, as agreed in its handshake.

    Attributes:
        version: for instance "TLSv1.3".
        cipher: name of the cipher suite.
        subject: of the client's certificate that was verified, in the form of RFC 4514; "" when
            it showed none or was not asked for one.
        issuer: likewise, of who signed it.
        not_after: when that certificate ends, as OpenSSL writes it; "" without one.
        login: the user that the certificate stands for, "" for none.
        external: clients may log in by their certificates (SASL EXTERNAL).
    """

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
        self.version = version
        self.cipher = cipher
        self.subject = subject
        self.issuer = issuer
        self.not_after = not_after
        self.login = login
        self.external = external
