"""Certificate that proves a node to the others of its cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeCertificate:
    """A certificate, its key, and who signs those of the other nodes; all PEM."""

    # followed by those between it and its root. Among its alternative names (DNS) must be the
    # node's name.
    certificate: bytes
    key: bytes  # private, not encrypted
    authorities: bytes  # roots that the certificates of all nodes lead to
    # returns why the certificate of another node (PEM), which such a root has signed, is not
    # believed, "" when it is; None where all are
    refuses: Callable[[bytes], str] | None = None
