"""Identity of a data directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace_raftlog.model.errors import IdentityError
from headrace_raftlog.storage.identity import Identity, read_identity
from headrace_raftlog.storage.memory_files import MemoryFiles

PATH = "/data/node.json"


def test_boot_counts_starts(tmp_path: Path) -> None:
    directory = str(tmp_path / "new" / "data")
    assert Identity.open(directory, "c", 3) == Identity("c", 3, 1)
    assert Identity.open(directory, "c", 3).boot == 2
    assert Identity.open(directory, "c", 3).boot == 3
    text = (tmp_path / "new" / "data" / "node.json").read_text()
    assert json.loads(text) == {"format": 1, "cluster": "c", "node": 3, "boot": 3}


@pytest.mark.parametrize(("cluster", "node"), [("c", 4), ("other", 3)])
def test_mismatch_names_both_and_counts_nothing(disk: MemoryFiles, cluster: str, node: int) -> None:
    Identity.open("/data", "c", 3, disk)
    with pytest.raises(IdentityError) as caught:
        Identity.open("/data", cluster, node, disk)
    assert "node 3 of cluster 'c'" in str(caught.value)
    assert f"node {node} of cluster '{cluster}'" in str(caught.value)
    assert read_identity("/data", disk) == Identity("c", 3, 1)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"format": 2, "cluster": "c", "node": 3, "boot": 1}',
        b'{"format": 1, "cluster": "c", "node": 3}',
        b'{"format": 1, "cluster": "c", "node": "3", "boot": 1}',
        b"\xff",
    ],
)
def test_damaged_file_is_refused_and_kept(disk: MemoryFiles, text: bytes) -> None:
    disk.put(PATH, text)
    with pytest.raises(IdentityError, match=r"/data/node\.json is damaged"):
        Identity.open("/data", "c", 3, disk)
    assert disk.file(PATH).written == text


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
