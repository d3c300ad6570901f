"""Rules of the configuration on how nodes of a cluster prove themselves off loopback."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final

LOCALHOST: Final = "localhost"


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host, by its name or address."""
    bare = host.removeprefix("[").removesuffix("]")
    if bare.lower().removesuffix(".") == LOCALHOST:
        return True
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def unproven_problem(places: Mapping[str, str], proven: bool) -> str:
    """Return why nodes that listen at places may not believe each other unseen; "" if they may."""
    if proven:
        return ""
    for key, address in places.items():
        if not is_loopback(address.rpartition(":")[0]):
            return (
                f"{key}: {address} is not loopback, and whoever reaches it could join the cluster: "
                "give all nodes the same cluster.join_secret_file, or certificates "
                "(cluster_tls.certificate_file)"
            )
    return ""
