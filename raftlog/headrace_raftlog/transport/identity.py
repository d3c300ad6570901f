"""Who is at the other end of a stream, as its metadata says."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

PROTOCOL_VERSION: Final = 1

CLUSTER_KEY: Final = "headrace-cluster"
NODE_KEY: Final = "headrace-node"
TARGET_KEY: Final = "headrace-target"
BOOT_KEY: Final = "headrace-boot"
PROTOCOL_KEY: Final = "headrace-protocol"


class StreamRefusedError(Exception):
    """The other end is not who it should be; the text says what differs."""


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """One end of a stream.

    Attributes:
        cluster: name of the cluster; travels percent-encoded.
        node: node id.
        boot: boot count of the node's data directory, from 1.
    """

    cluster: str
    node: int
    boot: int

    def metadata(self, target: int) -> tuple[tuple[str, str], ...]:
        """Return the metadata that tells node `target` who we are."""
        return (
            (CLUSTER_KEY, quote(self.cluster)),
            (NODE_KEY, str(self.node)),
            (TARGET_KEY, str(target)),
            (BOOT_KEY, str(self.boot)),
            (PROTOCOL_KEY, str(PROTOCOL_VERSION)),
        )

    def check(
        self, metadata: Iterable[tuple[str, str | bytes]], known: Collection[int]
    ) -> StreamIdentity:
        """Return who is at the other end.

        Args:
            metadata: what the other end sent.
            known: node ids that it may have.

        Raises:
            StreamRefusedError: it belongs to another cluster, is not one of `known`, means another
                node than this one, or speaks another version.
        """
        fields = {key: value for key, value in metadata if isinstance(value, str)}
        protocol = _number(fields, PROTOCOL_KEY)
        if protocol != PROTOCOL_VERSION:
            raise StreamRefusedError(
                f"protocol version {protocol} is not spoken here, only {PROTOCOL_VERSION}"
            )
        cluster = unquote(fields.get(CLUSTER_KEY, ""))
        if cluster != self.cluster:
            raise StreamRefusedError(
                f"a node of cluster {cluster!r} reached node {self.node} of cluster "
                f"{self.cluster!r}; check the configured addresses"
            )
        target = _number(fields, TARGET_KEY)
        if target != self.node:
            raise StreamRefusedError(
                f"node {target} was meant, but this is node {self.node}; "
                "check the configured addresses"
            )
        node = _number(fields, NODE_KEY)
        if node not in known:
            raise StreamRefusedError(f"node {node} is not a known peer of node {self.node}")
        return StreamIdentity(cluster, node, _number(fields, BOOT_KEY))


def _number(fields: dict[str, str], key: str) -> int:
    text = fields.get(key, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise StreamRefusedError(f"metadata {key} is {text!r}, not a number")
    return int(text)
