"""The part of the configuration about the user that a new cluster begins with."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

GUEST: Final = "guest"  # who may log in from loopback only, by a password that everybody knows


class DefaultUserSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The administrator of a new cluster; without effect once the cluster is there."""

    # of the user
    name: Annotated[str, Meta(min_length=1, max_length=255, description="1 to 255 letters")] = GUEST
    # its first line is the password; empty for `guest`, which may log in from loopback only. The
    # same on all founders of a cluster.
    password_file: Annotated[
        str, Meta(max_length=4096, description="the path of a file, or empty for none")
    ] = ""


def default_user_problem(section: DefaultUserSection) -> str:
    """Return why the section cannot be, "" when it can."""
    if section.name != GUEST and not section.password_file:
        return (
            f"default_user.password_file: is missing; default_user.name '{section.name}' needs it"
        )
    return ""
