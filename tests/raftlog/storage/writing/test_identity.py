"""Identity of a data directory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headrace_raftlog.model.errors import IdentityError, LostDirectoryError
from headrace_raftlog.storage.writing.identity import DISK_ID_MAX, Identity, read_identity
from headrace_simulation.memory_files import MemoryFiles

PATH = "/data/node.json"


DISK = 0x04030201  # what the disk in memory draws


def test_boot_counts_starts_on_one_disk(tmp_path: Path) -> None:
    directory = str(tmp_path / "new" / "data")
    first = Identity.open(directory, "c", 3)
    assert first == Identity("c", 3, 1, first.disk, {})
    assert 1 <= first.disk <= DISK_ID_MAX
    assert Identity.open(directory, "c", 3) == replace(first, boot=2)
    assert Identity.open(directory, "c", 3) == replace(first, boot=3)
    text = (tmp_path / "new" / "data" / "node.json").read_text()
    assert json.loads(text) == {
        "format": 2,
        "cluster": "c",
        "node": 3,
        "boot": 3,
        "disk": first.disk,
        "formed": {},
    }
    assert Identity.open(str(tmp_path / "other"), "c", 3).disk != first.disk


@pytest.mark.parametrize(
    ("founders", "member"),
    [({2: 7, 3: DISK}, 3), ({2: 7, 3: 8}, DISK << 10 | 3), ({2: 7}, DISK << 10 | 3)],
)
def test_formed_directory_knows_whether_it_is_a_founders(
    disk: MemoryFiles, founders: dict[int, int], member: int
) -> None:
    new = Identity.open("/data", "c", 3, disk)
    formed = new.form("/data", founders, disk)
    assert (formed.member, formed.boot) == (member, 1)
    assert formed.generation == member >> 10
    disk.put("/data/0000000000000001.log", b"")
    again = Identity.open("/data", "c", 3, disk)
    assert again == replace(formed, boot=2)
    assert again.formed == founders


def test_raised_boot_is_durable_and_starts_go_on_from_it(disk: MemoryFiles) -> None:
    raised = Identity.open("/data", "c", 3, disk).raised("/data", 500, disk)
    assert raised.boot == 500
    after = disk.after_power_loss(lambda *_: False, names_synced=False)
    assert Identity.open("/data", "c", 3, after).boot == 501


def test_formed_directory_without_its_log_is_refused_and_a_new_one_is_not(
    disk: MemoryFiles,
) -> None:
    Identity.open("/data", "c", 3, disk)
    new = Identity.open("/data", "c", 3, disk)
    new.form("/data", {3: DISK}, disk)
    with pytest.raises(LostDirectoryError, match="has lost its log"):
        Identity.open("/data", "c", 3, disk)


@pytest.mark.parametrize(("cluster", "node"), [("c", 4), ("other", 3)])
def test_mismatch_names_both_and_counts_nothing(disk: MemoryFiles, cluster: str, node: int) -> None:
    Identity.open("/data", "c", 3, disk)
    with pytest.raises(IdentityError) as caught:
        Identity.open("/data", cluster, node, disk)
    assert "node 3 of cluster 'c'" in str(caught.value)
    assert f"node {node} of cluster '{cluster}'" in str(caught.value)
    assert read_identity("/data", disk) == Identity("c", 3, 1, DISK)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"format": 2, "cluster": "c", "node": 3, "boot": 1, "disk": 1}',
        b'{"format": 2, "cluster": "c", "node": "3", "boot": 1, "disk": 1, "formed": {}}',
        b'{"format": 2, "cluster": "c", "node": 3, "boot": 1, "disk": 1, "formed": []}',
        b'{"format": 2, "cluster": "c", "node": 3, "boot": 1, "disk": 1, "formed": {"x": 1}}',
        b'{"format": 2, "cluster": "c", "node": 3, "boot": 1, "disk": 1, "formed": {"3": "1"}}',
        b"\xff",
    ],
)
def test_damaged_file_is_refused_and_kept(disk: MemoryFiles, text: bytes) -> None:
    disk.put(PATH, text)
    with pytest.raises(LostDirectoryError, match=r"/data/node\.json is damaged"):
        Identity.open("/data", "c", 3, disk)
    assert disk.file(PATH).written == text


@pytest.mark.parametrize("number", [1, 3])
def test_file_of_another_release_is_no_damage(disk: MemoryFiles, number: int) -> None:
    disk.put(PATH, b'{"format": %d, "cluster": "c", "node": 3, "boot": 1}' % number)
    with pytest.raises(IdentityError, match="not known to this release") as caught:
        Identity.open("/data", "c", 3, disk)
    assert not isinstance(caught.value, LostDirectoryError)


def test_log_whose_file_is_gone_is_refused(disk: MemoryFiles) -> None:
    disk.put("/data/0000000000000001.log", b"")
    with pytest.raises(LostDirectoryError, match=r"has lost node\.json"):
        Identity.open("/data", "c", 3, disk)


@pytest.mark.parametrize(("cluster", "node"), [("c", 0), ("c", 1024), ("", 1), ("x" * 256, 1)])
def test_values_out_of_range_are_refused(disk: MemoryFiles, cluster: str, node: int) -> None:
    with pytest.raises(ValueError, match=r"node id|cluster name"):
        Identity.open("/data", cluster, node, disk)


def test_power_loss_at_any_call_keeps_an_identity_whose_boot_never_goes_back() -> None:
    disk = MemoryFiles()
    Identity.open("/data", "c", 3, disk)
    before = disk.after_power_loss(lambda *_: True, names_synced=True)
    Identity.open("/data", "c", 3, before)
    calls = len(before.calls)
    assert calls >= 5
    for crash_at in range(calls):
        for names_synced in (False, True):
            trial = disk.after_power_loss(lambda *_: True, names_synced=True)

            def fail(call: str, path: str, trial: MemoryFiles = trial, at: int = crash_at) -> None:
                if len(trial.calls) == at + 1:
                    raise OSError(5, f"{call} {path}")

            trial.fault = fail
            with pytest.raises(OSError, match="/data"):
                Identity.open("/data", "c", 3, trial)
            after = trial.after_power_loss(lambda *_: False, names_synced=names_synced)
            assert Identity.open("/data", "c", 3, after).boot in (2, 3)


def test_power_loss_at_any_call_of_forming_leaves_it_formed_or_not() -> None:
    disk = MemoryFiles()
    Identity.open("/data", "c", 3, disk)
    new = read_identity("/data", disk)
    assert new is not None
    before = disk.after_power_loss(lambda *_: True, names_synced=True)
    formed = new.form("/data", {3: DISK}, before)
    calls = len(before.calls)
    assert calls >= 4
    for crash_at in range(calls):
        for names_synced in (False, True):
            trial = disk.after_power_loss(lambda *_: True, names_synced=True)

            def fail(call: str, path: str, trial: MemoryFiles = trial, at: int = crash_at) -> None:
                if len(trial.calls) == at + 1:
                    raise OSError(5, f"{call} {path}")

            trial.fault = fail
            with pytest.raises(OSError, match="/data"):
                new.form("/data", {3: DISK}, trial)
            after = trial.after_power_loss(lambda *_: False, names_synced=names_synced)
            assert read_identity("/data", after) in (new, formed)
