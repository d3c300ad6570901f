"""Certificates and keys: accepted ones, refusals, and their texts."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace_broker.config.configuration import ConfigError
from headrace_broker.config.tls import TlsSection
from headrace_broker.runtime.security import tls
from headrace_broker.runtime.security.tls import ServerTls, load_context, renew_forever

_LOCK = ("-aes256", "-passout", "pass:sesame")


def section(certificates, **more: Any) -> TlsSection:
    files = {
        "certificate_file": str(certificates.server.certificate),
        "key_file": str(certificates.server.key),
    }
    return TlsSection(**(files | {key: _text(value) for key, value in more.items()}))


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def refusal(certificates, **more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load_context(section(certificates, **more))
    return str(caught.value)


@pytest.mark.parametrize(
    ("verify", "required", "mode"),
    [
        ("none", False, ssl.CERT_NONE),
        ("peer", False, ssl.CERT_OPTIONAL),
        ("peer", True, ssl.CERT_REQUIRED),
    ],
)
def test_clients_are_asked_for_certificates_as_configured(certificates, verify, required, mode):
    ca = certificates.authority.file
    context = load_context(
        section(certificates, ca_file=ca, verify=verify, fail_if_no_peer_cert=required)
    )
    assert context.verify_mode is mode
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("key", ["certificate_file", "key_file", "ca_file"])
def test_a_file_that_is_not_there_is_named(certificates, tmp_path, key):
    gone = tmp_path / "gone.pem"
    wanted = f"tls.{key}: {gone}: cannot be read: No such file or directory"
    assert refusal(certificates, **{key: gone}) == wanted
    assert refusal(certificates, **{key: tmp_path}).startswith(f"tls.{key}: {tmp_path}: ")


@pytest.mark.parametrize(
    ("key", "rule"),
    [
        ("certificate_file", "holds no PEM certificate"),
        ("key_file", "holds no PEM key that key_password opens"),
        ("ca_file", "holds no PEM certificate"),
    ],
)
@pytest.mark.parametrize("content", [b"", b"\0\xff rubbish", b"-----BEGIN CERTIFICATE-----\nAA\n"])
def test_a_file_that_holds_something_else_is_named(certificates, tmp_path, key, rule, content):
    file = tmp_path / "file.pem"
    file.write_bytes(content)
    assert refusal(certificates, **{key: file}) == f"tls.{key}: {file}: {rule}"


def test_a_key_in_place_of_a_certificate_is_refused(certificates):
    key = certificates.server.key
    expected = f"tls.certificate_file: {key}: holds no PEM certificate"
    assert refusal(certificates, certificate_file=key) == expected


def test_anothers_key_is_refused(certificates):
    key = certificates.client.key
    expected = f"tls.key_file: {key}: must be the key of certificate_file, and is not"
    assert refusal(certificates, key_file=key) == expected


def test_a_certificate_that_signs_nothing_is_no_authority(certificates, tmp_path):
    leaf = tmp_path / "leaf.pem"
    shutil.copy(certificates.client.certificate, leaf)
    expected = f"tls.ca_file: {leaf}: holds no certificate of an authority"
    assert refusal(certificates, ca_file=leaf) == expected


def test_revocation_lists_are_looked_at_where_there_is_a_file_of_them(certificates, tmp_path):
    ca, lists = certificates.authority.file, certificates.authority.revoke()
    more = {"ca_file": ca, "verify": "peer"}
    context = load_context(section(certificates, **more, crl_file=lists))
    assert context.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF
    assert not load_context(section(certificates, **more)).verify_flags & ssl.VERIFY_CRL_CHECK_LEAF
    for wrong in (ca, tmp_path / "empty"):
        (tmp_path / "empty").touch()
        text = refusal(certificates, **more, crl_file=wrong)
        assert text == f"tls.crl_file: {wrong}: holds no PEM revocation list"


def test_an_encrypted_key_needs_its_password(certificates, tmp_path):
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "ec", "-in", certificates.server.key, "-out", locked, *_LOCK],
        check=True,
        capture_output=True,
    )
    load_context(section(certificates, key_file=locked, key_password="sesame"))
    for password in ("", "wrong"):
        text = refusal(certificates, key_file=locked, key_password=password)
        assert text == f"tls.key_file: {locked}: holds no PEM key that key_password opens"


def test_a_context_is_renewed_when_a_file_changes_and_kept_when_that_is_bad(certificates, tmp_path):
    mine = tmp_path / "server.pem"
    shutil.copy(certificates.server.certificate, mine)
    server = ServerTls(section(certificates, certificate_file=mine))
    first = server.context
    assert not server.changed()
    mine.write_text("half written")
    assert server.changed()
    with pytest.raises(ConfigError):
        server.renew()
    assert server.context is first
    assert not server.changed()  # told once
    shutil.copy(certificates.server.certificate, mine)
    assert server.changed()
    server.renew()
    assert server.context is not first


class FilesOnDisk:
    """A ServerTls whose files are good or bad as the test says."""

    def __init__(self) -> None:
        self.is_changed = False
        self.error = ""
        self.renewed = asyncio.Event()

    def changed(self) -> bool:
        return self.is_changed

    def renew(self) -> None:
        self.is_changed = False
        self.renewed.set()
        if self.error:
            raise ConfigError(self.error)


@pytest.mark.parametrize("asked", [True, False], ids=["hang-up", "changed file"])
def test_certificates_are_renewed_in_the_background(monkeypatch, caplog, asked):
    monkeypatch.setattr(tls, "LOOK_SECONDS", 30.0 if asked else 0.01)

    async def watch() -> None:
        files, hang_up = FilesOnDisk(), asyncio.Event()
        task = asyncio.create_task(renew_forever(hang_up, files))
        async with asyncio.timeout(20):
            for files.error in ("half written", ""):
                if asked:
                    hang_up.set()
                else:
                    files.is_changed = True
                await files.renewed.wait()
                files.renewed.clear()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with caplog.at_level(logging.INFO):
        asyncio.run(watch())
    assert [
        record.getMessage() for record in caplog.records if record.name == "headrace.security"
    ] == [
        "reload of certificates and secrets failed, the former ones stay in use: half written",
        "certificates and secrets reloaded; new connections use them",
    ]
