"""Credentials of a node for the others of its cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeCertificate:
    """A certificate, its key, and who signs those of the other nodes; all PEM.

    Attributes:
        certificate: followed by those between it and its root. Among its alternative names (DNS)
            must be the node's name.
        key: private, not encrypted.
        authorities: roots that the certificates of all nodes lead to.
        refuses: returns why the certificate of another node (PEM), which such a root has signed, is
            not believed, "" when it is; None where all are.
    """

    certificate: bytes
    key: bytes
    authorities: bytes
    refuses: Callable[[bytes], str] | None = None
