"""Who owns a data directory, and how often it was started."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import Any, Final

from headrace_raftlog.model.errors import IdentityError
from headrace_raftlog.model.limits import CLUSTER_NAME_BYTES_MAX, NODE_ID_MAX
from headrace_raftlog.storage.files import Files
from headrace_raftlog.storage.writer import write_all

IDENTITY_NAME: Final = "node.json"
IDENTITY_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """What a data directory says about its node.

    Attributes:
        cluster: name of the cluster, 1 to 255 bytes.
        node: node id, 1 to NODE_ID_MAX.
        boot: starts so far, this one included; from 1.
    """

    cluster: str
    node: int
    boot: int

    @staticmethod
    def open(directory: str, cluster: str, node: int, files: Files | None = None) -> Identity:
        """Count one more start of a node in its data directory, durably.

        Args:
            directory: data directory, created when missing; becomes this node's when new.
            cluster: the configured name of the cluster.
            node: the configured node id.
            files: the file system, for tests.

        Raises:
            IdentityError: the directory is another node's, or its file is damaged.
            ValueError: the name or id is outside its range.
            OSError: as the system says; the directory is as before.
        """
        if not 1 <= node <= NODE_ID_MAX:
            raise ValueError(f"node id {node} is not within 1 to {NODE_ID_MAX}")
        if not 1 <= len(cluster.encode()) <= CLUSTER_NAME_BYTES_MAX:
            raise ValueError(f"cluster name {cluster!r} is not 1 to 255 bytes long")
        disk = files if files is not None else Files()
        disk.make_directory(directory)
        known = read_identity(directory, disk)
        if known is not None and (known.cluster, known.node) != (cluster, node):
            raise IdentityError(
                f"{directory} belongs to node {known.node} of cluster {known.cluster!r}, "
                f"but the configuration says node {node} of cluster {cluster!r}"
            )
        identity = Identity(cluster, node, known.boot + 1 if known is not None else 1)
        _write(disk, directory, identity)
        return identity


def read_identity(directory: str, files: Files) -> Identity | None:
    """Return what a data directory says, None when it says nothing yet.

    Raises:
        IdentityError: its file is damaged.
    """
    path = os.path.join(directory, IDENTITY_NAME)
    try:
        fd = files.open(path)
    except FileNotFoundError:
        return None
    try:
        text = files.read(fd, files.size(fd), 0)
    finally:
        files.close(fd)
    try:
        return _decode(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise IdentityError(
            f"{path} is damaged ({error!r}): restore it, or move the data directory away and let "
            "the node join again as a new member"
        ) from error


def _decode(fields: Any) -> Identity:
    if fields["format"] != IDENTITY_FORMAT:
        raise ValueError(f"format {fields['format']!r} is not known to this release")
    cluster, node, boot = fields["cluster"], fields["node"], fields["boot"]
    if not isinstance(cluster, str) or type(node) is not int or type(boot) is not int:
        raise TypeError("a field has the wrong type")
    return Identity(cluster, node, boot)


def _write(files: Files, directory: str, identity: Identity) -> None:
    fields = {
        "format": IDENTITY_FORMAT,
        "cluster": identity.cluster,
        "node": identity.node,
        "boot": identity.boot,
    }
    data = (json.dumps(fields) + "\n").encode()
    path = os.path.join(directory, IDENTITY_NAME)
    draft = path + ".new"
    with contextlib.suppress(FileNotFoundError):
        files.remove(draft)
    fd = files.create(draft)
    try:
        write_all(files, fd, [data], len(data), 0)
    finally:
        files.close(fd)
    files.rename(draft, path)
    files.sync_directory(directory)
