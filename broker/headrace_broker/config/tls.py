"""The parts of the configuration about certificates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

File = Annotated[str, Meta(max_length=4096, description="the path of a file, or empty for none")]


class TlsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Certificates and requirements of TLS listeners; files are PEM.

    Attributes:
        certificate_file: the node's certificate, followed by those between it and its root.
        key_file: the certificate's private key.
        key_password: of an encrypted key.
        ca_file: roots that clients' certificates must lead to.
        crl_file: lists of certificates that were revoked, empty to look at none.
        verify: "peer" asks clients for a certificate and refuses one that is not valid.
        fail_if_no_peer_cert: refuse clients that show none.
        login_from: which part of a client's certificate names the user; SASL EXTERNAL is offered
            if one does. Clients that have a certificate prefer it to their password then.
    """

    certificate_file: File = ""
    key_file: File = ""
    key_password: Annotated[str, Meta(max_length=1024)] = ""
    ca_file: File = ""
    crl_file: File = ""
    verify: Literal["none", "peer"] = "none"
    fail_if_no_peer_cert: bool = False
    login_from: Literal["none", "common_name", "distinguished_name"] = "none"


class ClusterTlsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By what nodes prove to each other who they are; all empty for nodes that believe each other.

    Attributes:
        certificate_file: the node's certificate, followed by those between it and its root. Among
            its alternative names (DNS) must be the node's name.
        key_file: the certificate's private key, not encrypted.
        ca_file: roots that the certificates of all nodes lead to; best of this cluster alone.
        crl_file: lists of certificates that were revoked, empty to look at none.
    """

    certificate_file: File = ""
    key_file: File = ""
    ca_file: File = ""
    crl_file: File = ""


def tls_problem(tls: TlsSection, secure: Sequence[str]) -> str:
    """Return why a TLS section does not fit its listeners, or itself, "" when it does.

    Args:
        tls: the section.
        secure: names of the listeners that speak TLS.
    """
    if not secure:
        for key in ("certificate_file", "key_file", "ca_file", "crl_file"):
            if getattr(tls, key):
                return f"tls.{key}: has no use without listeners.amqps, https or grpcs"
    else:
        for key in ("certificate_file", "key_file"):
            if not getattr(tls, key):
                return f"tls.{key}: is missing; listeners.{secure[0]} needs it"
    if tls.crl_file and tls.verify != "peer":
        return "tls.crl_file: is allowed with tls.verify = 'peer' only"
    if tls.verify == "peer" and not tls.ca_file:
        return "tls.ca_file: is missing; tls.verify = 'peer' needs it"
    if tls.login_from != "none" and tls.verify != "peer":
        return f"tls.login_from: '{tls.login_from}' is allowed with tls.verify = 'peer' only"
    if tls.fail_if_no_peer_cert and tls.verify != "peer":
        return "tls.fail_if_no_peer_cert: true is allowed with tls.verify = 'peer' only"
    return ""


def cluster_tls_problem(section: ClusterTlsSection) -> str:
    """Return what is missing of certificates between nodes, "" for nothing."""
    keys = ("certificate_file", "key_file", "ca_file")
    given = [key for key in keys if getattr(section, key)]
    for key in keys:
        if given and key not in given:
            return f"cluster_tls.{key}: is missing; cluster_tls.{given[0]} needs it"
    if section.crl_file and not given:
        return "cluster_tls.crl_file: has no use without cluster_tls.certificate_file"
    return ""
