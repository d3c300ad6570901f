"""The parts of a BrokerCluster about certificates."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from headrace_operator.specs.field import ObjectName, Rule, Spec

AuthorityMode = Literal["Operator", "Secret", "Disabled"]

_SECRET_RULE = Rule(
    "(self.mode == 'Secret') == has(self.secretName)",
    "secretName is for mode Secret, and needed there",
)


class InternalTls(Spec, frozen=True, kw_only=True):
    """Mutual TLS between nodes.

    Attributes:
        mode: who makes the certificates: the operator with an authority of this cluster alone,
            somebody else (cert-manager, for instance) in the Secret `secretName`, or nobody: then
            nodes believe each other. It cannot be changed between on and off, for nodes of both
            kinds do not talk to each other.
        secret_name: a Secret with tls.crt, tls.key and ca.crt. The certificate must name every node
            (`NAME-0`, `NAME-1`, ...) among its alternative names.
    """

    RULES = (
        _SECRET_RULE,
        Rule(
            "(self.mode == 'Disabled') == (oldSelf.mode == 'Disabled')",
            "TLS between nodes cannot be turned on or off while the cluster is there",
        ),
    )

    mode: AuthorityMode = "Operator"
    secret_name: ObjectName | None = None


class ClientTls(Spec, frozen=True, kw_only=True):
    """TLS for clients.

    Attributes:
        mode: who makes the nodes' certificates: the operator, somebody else in the Secret
            `secretName`, or nobody: then clients are served in the clear only.
        secret_name: a Secret with tls.crt and tls.key; with ca.crt if clients verify by it.
        plain: whether clients are served in the clear besides.
        verify: whether clients are asked for a certificate, and have to show one.
        ca_secret_name: a Secret whose ca.crt has the authorities of clients' certificates; absent
            for that of the nodes' own.
        login_from: which part of a client's certificate names the user.
        extra_names: names or addresses besides those of the Services that the operator's
            certificates are for.
    """

    RULES = (
        _SECRET_RULE,
        Rule(
            "self.mode != 'Disabled' || (self.plain && self.verify == 'None')",
            "without TLS clients are served in the clear, and show no certificates",
        ),
        Rule(
            "self.loginFrom == 'None' || self.verify != 'None'",
            "loginFrom needs verify Optional or Required",
        ),
    )

    mode: AuthorityMode = "Disabled"
    secret_name: ObjectName | None = None
    plain: bool = True
    verify: Literal["None", "Optional", "Required"] = "None"
    ca_secret_name: ObjectName | None = None
    login_from: Literal["None", "CommonName", "DistinguishedName"] = "None"
    extra_names: (
        Annotated[list[Annotated[str, Meta(min_length=1, max_length=253)]], Meta(max_length=32)]
        | None
    ) = None


class CertificateLife(Spec, frozen=True, kw_only=True):
    """Lifetime of certificates of the operator's authority.

    Attributes:
        days: of a certificate.
        renew_before_days: so many days before its end it is made anew.
        authority_days: of the authority itself, which is replaced in time, too: old and new one are
            believed side by side until no certificate of the old one is left.
    """

    RULES = (
        Rule("self.renewBeforeDays < self.days", "renewBeforeDays must be less than days"),
        Rule("self.authorityDays >= 2 * self.days", "authorityDays must be at least twice days"),
    )

    days: Annotated[int, Meta(ge=2, le=825)] = 90
    renew_before_days: Annotated[int, Meta(ge=1, le=365)] = 30
    authority_days: Annotated[int, Meta(ge=4, le=7300)] = 3650


class Tls(Spec, frozen=True, kw_only=True):
    """Certificates.

    Attributes:
        internal: between nodes.
        clients: for clients.
        certificates: how long the operator's are good for.
    """

    internal: InternalTls = InternalTls()
    clients: ClientTls = ClientTls()
    certificates: CertificateLife = CertificateLife()
