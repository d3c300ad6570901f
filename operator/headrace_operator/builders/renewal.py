"""When certificates are made anew: a decision about facts and the time, and nothing else.

An authority is replaced without anybody being cut off: first the new one is believed besides the
old one; when every node has had time to hear of it, certificates are issued by it; when these have
reached everybody, the old one is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from headrace_operator.builders.certificate import Facts
from headrace_operator.specs.cluster_tls import CertificateLife

# For a changed Secret to be in every pod, and read there: kubelets take some two minutes.
SETTLE: Final = timedelta(hours=1)
AUTHORITIES_MAX: Final = 2


class Decision(NamedTuple):
    """Actions that are due now.

    Attributes:
        new_authority: make an authority; it becomes the first one.
        issuer: number of the authority that issues, the new one being counted.
        issue: certificates to make, by name.
        drop: the last authority is to be forgotten.
        next_at: when to look again at the latest.
    """

    new_authority: bool
    issuer: int
    issue: tuple[str, ...]
    drop: bool
    next_at: datetime

    @property
    def changes(self) -> bool:
        """True if there is anything to do."""
        return self.new_authority or bool(self.issue) or self.drop


def decide(
    now: datetime,
    life: CertificateLife,
    wanted: Mapping[str, frozenset[str]],
    authorities: Sequence[Facts],
    leaves: Mapping[str, Facts],
) -> Decision:
    """Return the due actions.

    Args:
        now: with a time zone.
        life: how long things are good for.
        wanted: names that each certificate is to have.
        authorities: those that are believed, the newest first.
        leaves: certificates that there are.
    """
    alive = [each for each in authorities if each.not_after > now]
    if not alive:
        later = now + _until_authority_renewal(life)
        return Decision(True, 0, tuple(sorted(wanted)), len(authorities) > 0, later)
    dead = len(alive) < len(authorities)
    renew_at = alive[0].not_after - timedelta(days=life.days + life.renew_before_days)
    if now >= renew_at and len(alive) < AUTHORITIES_MAX:
        issue = _due(now, life, wanted, alive[0], leaves)
        return Decision(True, 1, issue, dead, now + SETTLE)
    settled = len(alive) == 1 or now >= alive[0].made_at + SETTLE
    issuer = alive[0] if settled else alive[1]
    issue = _due(now, life, wanted, issuer, leaves)
    drop = dead or (len(alive) > 1 and settled and _moved(now, wanted, alive[0], leaves))
    kept = [leaves[name].not_after - _before(life) for name in wanted if name not in issue]
    times = [renew_at, now + timedelta(days=life.days) - _before(life), *kept]
    if len(alive) > 1:
        times += [alive[0].made_at + SETTLE, now + SETTLE]
    later = min([time for time in times if time > now], default=now + SETTLE)
    return Decision(False, 0 if settled else 1, issue, drop, later)


def _until_authority_renewal(life: CertificateLife) -> timedelta:
    return min(
        timedelta(days=life.days - life.renew_before_days),
        timedelta(days=max(life.authority_days - life.days - life.renew_before_days, 1)),
    )


def _before(life: CertificateLife) -> timedelta:
    return timedelta(days=life.renew_before_days)


def _due(
    now: datetime,
    life: CertificateLife,
    wanted: Mapping[str, frozenset[str]],
    issuer: Facts,
    leaves: Mapping[str, Facts],
) -> tuple[str, ...]:
    """Return the certificates that are missing, not for the right names, old, or not the issuer's.

    One that ends because its authority does is not made anew before there is another authority.
    """

    def due(name: str) -> bool:
        leaf = leaves.get(name)
        if leaf is None or leaf.names != wanted[name] or leaf.authority != issuer.key:
            return True
        return now >= leaf.not_after - _before(life) and leaf.not_after < issuer.not_after

    return tuple(sorted([name for name in wanted if due(name)]))


def _moved(
    now: datetime, wanted: Mapping[str, frozenset[str]], newest: Facts, leaves: Mapping[str, Facts]
) -> bool:
    """Return whether all certificates are the newest authority's, and have reached everybody."""
    found = [leaves.get(name) for name in wanted]
    return all(
        leaf is not None and leaf.authority == newest.key and now >= leaf.made_at + SETTLE
        for leaf in found
    )
