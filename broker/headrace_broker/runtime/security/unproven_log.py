"""Marks lines of the log that anybody may cause, before a log-in: how many are written is bounded.

The bound is kept where all lines pass, by `cli.log_budget`.
"""

from __future__ import annotations

from typing import Final

from headrace_broker.runtime.security.login_limit import site

ATTRIBUTE: Final = "unproven"  # of records


def unproven(host: str) -> dict[str, str]:
    """Return what marks a record (`extra`) that a client at a host has caused."""
    return {ATTRIBUTE: site(host)}
