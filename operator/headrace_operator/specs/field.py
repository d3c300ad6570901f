"""Types of fields that several resources have, and how a field or type says what holds of it.

What msgspec knows (ranges, patterns, sizes, enums by `Literal`) is said with its `Meta`; what only
the API server can check is said by `Rule`s, which become `x-kubernetes-validations`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

NAME_MAX: Final = 255  # bytes of an AMQP name
LIST_MAX: Final = 64  # rows of a list in a spec: bounds what the API server's rules cost
REGULAR_EXPRESSION_MAX: Final = 1024  # letters
DURATION_S_MAX: Final = 86_400
# The API server compares numbers as doubles, and refuses every value of a field whose bound is not
# one that these hold to the last digit.
INTEGER_MAX: Final = (1 << 53) - 1

_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_QUANTITY: Final = (
    r"^(\+)?([0-9]+(\.[0-9]*)?|\.[0-9]+)(([KMGTPE]i)|[mkMGTPE]|([eE](\+|-)?[0-9]+))?$"
)


class Rule(Struct, frozen=True):
    """A rule in CEL.

    Attributes:
        rule: the expression; true for what is allowed.
        message: what is said of the rest.
    """

    rule: str
    message: str


class Spec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of custom resources' fields: names are in camel case there."""


IMMUTABLE: Final = Meta(extra={"immutable": True})
SET: Final = Meta(extra_json_schema={"x-kubernetes-list-type": "set"})


def keyed(*keys: str) -> Meta:
    """Return the annotation of a list whose rows are identified by some of their fields."""
    return Meta(
        extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [*keys]}
    )


# Names of Kubernetes' own.
ObjectName = Annotated[
    str, Meta(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]
Namespace = Annotated[str, Meta(min_length=1, max_length=63, pattern=_LABEL)]
SecretKey = Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
Quantity = Annotated[str, Meta(min_length=1, max_length=32, pattern=_QUANTITY)]
IntOrQuantity = Annotated[int | str, Meta(extra_json_schema={"pattern": _QUANTITY})]
Labels = Annotated[dict[str, Annotated[str, Meta(max_length=63)]], Meta(max_length=LIST_MAX)]
Annotations = Annotated[dict[str, str], Meta(max_length=LIST_MAX)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Seconds = Annotated[int, Meta(ge=0, le=DURATION_S_MAX)]

# Names and values of AMQP.
AmqpName = Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
ExchangeName = Annotated[str, Meta(max_length=NAME_MAX)]  # "" is the default exchange
RoutingKey = Annotated[str, Meta(max_length=NAME_MAX)]
RegularExpression = Annotated[str, Meta(max_length=REGULAR_EXPRESSION_MAX)]
Arguments = Annotated[dict[str, Any], Meta(max_length=LIST_MAX)]

# What becomes of a thing in the broker when its resource is deleted.
DeletionPolicy = Literal["Delete", "Retain"]
CarefulDeletionPolicy = Literal["RefuseUnlessEmpty", "Delete", "Retain"]


class LocalReference(Spec, frozen=True, kw_only=True):
    """An object in the same namespace."""

    name: ObjectName


class ClusterReference(Spec, frozen=True, kw_only=True):
    """The BrokerCluster that a resource is for.

    Attributes:
        name: of the BrokerCluster.
        namespace: of the BrokerCluster, where it is another one; it has to allow this resource's
            namespace in `allowedNamespaces`.
    """

    name: ObjectName
    namespace: Namespace | None = None
