"""Facts about a client connection's TLS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(eq=False)
class TlsSession:
    """One connection's TLS, as agreed in its handshake."""

    version: str  # for instance "TLSv1.3"
    cipher: str  # name of the cipher suite
    # of the client's certificate that was verified, in the form of RFC 4514; "" when it showed
    # none or was not asked for one
    subject: str = ""
    issuer: str = ""  # likewise, of who signed it
    not_after: str = ""  # when that certificate ends, as OpenSSL writes it, or ""
    login: str = ""  # the user that the certificate stands for, "" for none
    external: bool = False  # clients may log in by their certificates (SASL EXTERNAL)
