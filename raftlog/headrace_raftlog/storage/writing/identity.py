"""Identity of a data directory: its owner, its disk id and its boot count."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headrace_raftlog.model.errors import IdentityError, LostDirectoryError
from headrace_raftlog.model.limits import CLUSTER_NAME_BYTES_MAX, NODE_ID_MAX
from headrace_raftlog.model.membership import member_id
from headrace_raftlog.storage.disk.files import Files, write_all

IDENTITY_NAME: Final = "node.json"
IDENTITY_FORMAT: Final = 2
DISK_ID_MAX: Final = (1 << 32) - 1

_SEGMENT_SUFFIX: Final = ".log"


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a node, as its data directory has it.

    A directory is *formed* once its node knows which disks founded the cluster, its own or not.
    Before that it has never taken part in anything.
    """

    cluster: str  # name of the cluster, 1 to 255 bytes
    node: int  # node id, 1 to NODE_ID_MAX
    # starts so far, this one included; from 1. It may be raised (`raised`), because a lost
    # directory of the node had counted further.
    boot: int
    disk: int  # random id of the directory, 1 to DISK_ID_MAX; another one after a loss of the data
    # disk by node id of all founding nodes; empty while the directory is not formed
    formed: dict[int, int] = field(default_factory=dict)
    # whether the node was a member before, on a disk whose log was set aside: it may join a cluster
    # and never founds one
    rejoins: bool = False

    @property
    def generation(self) -> int:
        """Generation of this node's members: 0 on a founding disk, the disk's id otherwise."""
        return 0 if self.formed.get(self.node) == self.disk else self.disk

    @property
    def member(self) -> int:
        """This node's member id in groups that it founds or joins."""
        return member_id(self.node, self.generation)

    @staticmethod
    def open(directory: str, cluster: str, node: int, files: Files | None = None) -> Identity:
        """Count one more start of a node in its data directory, durably.

        Args:
            directory: data directory, created when missing; becomes this node's when new.
            cluster: the configured name of the cluster.
            node: the configured node id.
            files: the file system, for tests.

        Raises:
            IdentityError: the directory is another node's.
            LostDirectoryError: its file is damaged, or the file or the log that belongs to it is
                gone.
            ValueError: the name or id is outside its range.
            OSError: as the system says; the directory is as before.
        """
        if not 1 <= node <= NODE_ID_MAX:
            raise ValueError(f"node id {node} is not within 1 to {NODE_ID_MAX}")
        if not 1 <= len(cluster.encode()) <= CLUSTER_NAME_BYTES_MAX:
            raise ValueError(f"cluster name {cluster!r} is not 1 to 255 bytes long")
        store = files if files is not None else Files()
        store.make_directory(directory)
        known = read_identity(directory, store)
        if known is None:
            if _has_log(directory, store):
                raise LostDirectoryError(
                    f"{directory} has lost {IDENTITY_NAME}: only its log is there"
                )
            disk = int.from_bytes(store.random(4), "little") or 1
            identity = Identity(cluster, node, 1, disk)
        else:
            _check_owner(known, directory, cluster, node)
            if known.formed and not _has_log(directory, store):
                raise LostDirectoryError(
                    f"{directory} has lost its log: only {IDENTITY_NAME} is there. Restore the log "
                    f"if it is somewhere; else move {IDENTITY_NAME} away, and the node begins anew"
                )
            identity = replace(known, boot=known.boot + 1)
        identity.write(directory, store)
        return identity

    def form(
        self, directory: str, founders: dict[int, int], files: Files | None = None
    ) -> Identity:
        """Note durably which disks founded the cluster.

        Args:
            directory: the data directory.
            founders: disk by node id; the cluster is founded by this node too if its disk is
                there, and otherwise it joins as a new member.
            files: the file system, for tests.

        Raises OSError: as the system says; the directory is as before, or formed.
        """
        assert not self.formed, "a directory is formed once"
        assert founders, "somebody founded the cluster"
        formed = replace(self, formed=dict(sorted(founders.items())))
        formed.write(directory, files)
        return formed

    def raised(self, directory: str, boot: int, files: Files | None = None) -> Identity:
        """Count this start as a later one, durably.

        Args:
            directory: the data directory.
            boot: beyond the present count; starts go on from it.
            files: the file system, for tests.

        Raises OSError: as the system says; the directory is as before, or says so.
        """
        assert boot > self.boot, "boot counts never fall"
        raised = replace(self, boot=boot)
        raised.write(directory, files)
        return raised

    def write(self, directory: str, files: Files | None = None) -> None:
        """Write the directory's identity file durably.

        Raises OSError: as the system says; the file is as before, or new.
        """
        store = files if files is not None else Files()
        fields: dict[str, Any] = {
            "format": IDENTITY_FORMAT,
            "cluster": self.cluster,
            "node": self.node,
            "boot": self.boot,
            "disk": self.disk,
            "formed": {str(node): disk for node, disk in self.formed.items()},
        }
        if self.rejoins:
            fields["rejoins"] = True
        data = (json.dumps(fields) + "\n").encode()
        path = os.path.join(directory, IDENTITY_NAME)
        draft = path + ".new"
        with contextlib.suppress(FileNotFoundError):
            store.remove(draft)
        fd = store.create(draft)
        try:
            write_all(store, fd, [data], len(data), 0)
        finally:
            store.close(fd)
        store.rename(draft, path)
        store.sync_directory(directory)


def _check_owner(known: Identity, directory: str, cluster: str, node: int) -> None:
    if (known.cluster, known.node) != (cluster, node):
        raise IdentityError(
            f"{directory} belongs to node {known.node} of cluster {known.cluster!r}, "
            f"but the configuration says node {node} of cluster {cluster!r}"
        )


def _has_log(directory: str, files: Files) -> bool:
    return any(name.endswith(_SEGMENT_SUFFIX) for name in files.names(directory))


def read_identity(directory: str, files: Files) -> Identity | None:
    """Return what a data directory says, None when it says nothing yet.

    Raises IdentityError: its file is of another release; LostDirectoryError: it is damaged.
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
        fields = json.loads(text)
        if (number := int(fields["format"])) == IDENTITY_FORMAT:
            return _decode(fields)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LostDirectoryError(
            f"{path} is damaged ({error!r}): restore it, or move the data directory away and let "
            "the node join again as a new member"
        ) from error
    raise IdentityError(f"{path} has format {number}, which is not known to this release")


def _decode(fields: Any) -> Identity:
    cluster, node, boot = fields["cluster"], fields["node"], fields["boot"]
    disk = fields["disk"]
    formed = {int(founder): founder_disk for founder, founder_disk in fields["formed"].items()}
    numbers = (node, boot, disk, *formed.values())
    if not isinstance(cluster, str) or any(type(number) is not int for number in numbers):
        raise TypeError("a field has the wrong type")
    return Identity(cluster, node, boot, disk, formed, fields.get("rejoins") is True)
