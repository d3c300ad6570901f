"""Manifest of a backup, and its verification."""

from __future__ import annotations

import hashlib
import shutil
import subprocess

import msgspec
import pytest
from tests.broker.cli.backup.sample import backup_at, block, data_file

from headrace_broker.cli.backup.data_file import DamagedError
from headrace_broker.cli.backup.manifest import (
    MANIFEST,
    SUMS,
    Manifest,
    encode,
    folder_of,
    read_manifest,
    write_manifest,
)
from headrace_broker.cli.backup.store import DirectoryStore, Store
from headrace_broker.cli.backup.verifying import verify


def problems(store: Store, manifest: Manifest) -> list[str]:
    return verify(store, manifest, lambda byte_count: None)


def test_backup_is_read_as_it_was_written(tmp_path) -> None:
    store, manifest = backup_at(tmp_path)
    assert read_manifest(store) == manifest
    assert manifest.messages == 4
    assert problems(store, manifest) == []


def test_checksums_are_those_of_sha256sum(tmp_path) -> None:
    backup_at(tmp_path)
    tool = shutil.which("sha256sum")
    if tool is None:
        pytest.skip("needs coreutils")
    told = subprocess.run([tool, "-c", SUMS], cwd=tmp_path, capture_output=True, check=True)
    assert told.stdout.count(b": OK") == 4


def test_backup_without_a_manifest_is_none(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        read_manifest(DirectoryStore(tmp_path))


def test_every_flipped_byte_of_the_manifest_is_noticed(tmp_path) -> None:
    store, _ = backup_at(tmp_path)
    data = store.read(MANIFEST)
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 0x01
        store.write(MANIFEST, bytes(changed))
        with pytest.raises(DamagedError, match=MANIFEST):
            read_manifest(store)


def test_manifest_of_another_kind_or_version_is_refused_as_that(tmp_path) -> None:
    store, manifest = backup_at(tmp_path)
    for change, text in (
        ({"version": 2}, "has version 2 of the format, known here is 1: take a release"),
        ({"format": "other"}, "format: must be 'headrace-backup'"),
        ({"queues": 7}, r"Expected `array`, got `int` - at `\$.queues`"),
    ):
        store.write(MANIFEST, encode(msgspec.to_builtins(manifest) | change))
        with pytest.raises(DamagedError, match=text):
            read_manifest(store)
    store.write(MANIFEST, b"{")
    with pytest.raises(DamagedError, match=r"manifest\.json is no JSON"):
        read_manifest(store)


def test_manifest_without_checksums_is_noticed(tmp_path) -> None:
    store, _ = backup_at(tmp_path)
    (tmp_path / SUMS).unlink()
    with pytest.raises(DamagedError, match="SHA256SUMS is missing"):
        read_manifest(store)


def test_files_that_are_missing_changed_or_exchanged_are_all_named(tmp_path) -> None:
    store, manifest = backup_at(tmp_path)
    first, second = manifest.queues[0].files
    store.write(second.name, data_file(block(7, b"e")))
    found = problems(store, manifest)
    assert found == [f"{second.name} does not have the checksum that the manifest says"]
    store.write(second.name, data_file(block(7, b"longer")))
    assert "bytes, the manifest says" in problems(store, manifest)[0]
    (tmp_path / first.name).unlink()
    (tmp_path / manifest.definitions.name).write_bytes(b"{}")
    found = problems(store, manifest)
    assert [each.split(" ")[0] for each in found] == ["definitions.json", first.name, second.name]
    (tmp_path / manifest.definitions.name).unlink()
    assert problems(store, manifest)[0] == "definitions.json is missing"


def test_counts_that_do_not_agree_are_noticed(tmp_path) -> None:
    store, manifest = backup_at(tmp_path)
    queue = manifest.queues[0]
    file = msgspec.structs.replace(queue.files[0], messages=2)
    changed = msgspec.structs.replace(
        manifest, queues=[msgspec.structs.replace(queue, files=[file, queue.files[1]])]
    )
    write_manifest(store, changed)
    found = problems(store, read_manifest(store))
    assert found == [
        f"{file.name} holds other messages than the manifest says",
        "queue 'orders' in vhost '/': 3 messages in its files, 4 at its point",
    ]


def test_folders_tell_queues_apart_whatever_they_are_called() -> None:
    names = [("/", "a"), ("/a", ""), ("", "/a"), ("/", "../../etc"), ("/", "x" * 255), ("ä", "ö")]
    folders = {folder_of(*name) for name in names}
    assert len(folders) == len(names)
    assert all(len(each) == len("queues/") + 24 for each in folders)
    assert folder_of("/", "a") == "queues/" + hashlib.sha256(b"1:/a").hexdigest()[:24]
