"""Results of catalog commands: plain values, each with a sentence for people."""

from __future__ import annotations

from typing import Any

import msgspec


class Ok(msgspec.Struct, frozen=True):
    """Done.

    Attributes:
        value: what was created or deleted, None where there is nothing to tell.
    """

    value: Any = None

    @property
    def text(self) -> str:
        """Say it for people."""
        return "done"


class Exists(msgspec.Struct, frozen=True):
    """No change: an equivalent object exists.

    Attributes:
        current: the definition that is there.
    """

    current: Any = None

    @property
    def text(self) -> str:
        """Say it for people."""
        return "exists"


class NotFound(msgspec.Struct, frozen=True):
    """No change: an object does not exist.

    Attributes:
        what: for instance "queue 'tasks' in vhost '/'".
    """

    what: str

    @property
    def text(self) -> str:
        """Say it for people."""
        return f"no {self.what}"


class Inequivalent(msgspec.Struct, frozen=True):
    """No change: the object exists with another property.

    Attributes:
        what: for instance "queue 'tasks' in vhost '/'".
        field: the property or argument that differs.
        received: its value in the command, as a phrase.
        current: its value in the catalog, as a phrase.
    """

    what: str
    field: str
    received: str
    current: str

    @property
    def text(self) -> str:
        """Say it for people, in the words that RabbitMQ uses."""
        return (
            f"inequivalent arg '{self.field}' for {self.what}: "
            f"received {self.received} but current is {self.current}"
        )


class Locked(msgspec.Struct, frozen=True):
    """No change: the queue is exclusive to another connection, or not exclusive as requested.

    Attributes:
        what: for instance "queue 'tasks' in vhost '/'".
    """

    what: str

    @property
    def text(self) -> str:
        """Say it for people, in the words that RabbitMQ uses."""
        return (
            f"cannot obtain exclusive access to locked {self.what}. It could be originally "
            "declared on another connection or the exclusive property value does not match that "
            "of the original declaration."
        )


class InUse(msgspec.Struct, frozen=True):
    """No change: the object is in use and was to be deleted only if unused.

    Attributes:
        what: for instance "exchange 'tasks' in vhost '/'".
    """

    what: str

    @property
    def text(self) -> str:
        """Say it for people."""
        return f"{self.what} in use"


class Refused(msgspec.Struct, frozen=True):
    """No change: the command breaks a rule.

    Attributes:
        reason: which one, naming the field.
    """

    reason: str

    @property
    def text(self) -> str:
        """Say it for people."""
        return self.reason


class UpgradePending(msgspec.Struct, frozen=True):
    """Not proposed: a node of the cluster does not know such a command yet.

    Attributes:
        reason: which node, and what to do.
    """

    reason: str

    @property
    def text(self) -> str:
        """Say it for people."""
        return self.reason


class Repeated(msgspec.Struct, frozen=True):
    """No change: this request was seen before, or is too old to tell."""

    @property
    def text(self) -> str:
        """Say it for people."""
        return "repeated request"


Result = (
    Ok | Exists | NotFound | Inequivalent | Locked | InUse | Refused | UpgradePending | Repeated
)
