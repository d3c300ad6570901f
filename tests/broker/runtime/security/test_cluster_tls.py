"""The certificate between nodes: accepted ones, and when others must authenticate again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from e2e.harness.authority import Authority

from headrace_broker.config.configuration import ConfigError
from headrace_broker.config.tls import ClusterTlsSection, TlsSection
from headrace_broker.runtime.security.cluster_tls import ClusterTls


@pytest.fixture(scope="module")
def signed(tmp_path_factory) -> Path:
    """Certificates of two authorities."""
    directory: Path = tmp_path_factory.mktemp("cluster")
    for name in ("one", "two"):
        authority = Authority(directory, name)
        authority.sign("/CN=n1", f"{name}-n1", alternative_names="DNS:N1,DNS:other")
    return directory


@pytest.fixture
def files(signed: Path, tmp_path: Path) -> Path:
    show(signed, tmp_path, "one", "one")
    return tmp_path


def show(signed: Path, files: Path, own: str, *believed: str) -> None:
    shutil.copy(signed / f"{own}-n1.pem", files / "node.pem")
    shutil.copy(signed / f"{own}-n1.key", files / "node.key")
    roots = b"".join((signed / f"{each}.pem").read_bytes() for each in believed)
    (files / "ca.pem").write_bytes(roots)


def section(files: Path) -> ClusterTlsSection:
    return ClusterTlsSection(
        certificate_file=str(files / "node.pem"),
        key_file=str(files / "node.key"),
        ca_file=str(files / "ca.pem"),
    )


def test_a_certificate_that_does_not_name_the_node_is_refused(files):
    ClusterTls(section(files), "n1")
    with pytest.raises(ConfigError) as caught:
        ClusterTls(section(files), "n2")
    assert str(caught.value) == (
        f"cluster_tls.certificate_file: {files / 'node.pem'}: must have this node's name, n2, "
        "among its alternative names (DNS); it has N1, other"
    )


def test_a_certificate_for_clients_only_is_refused(signed, files):
    pair = Authority(files, "other").sign(
        "/CN=n1", "node", alternative_names="DNS:n1", extensions="extendedKeyUsage=clientAuth"
    )
    assert pair.certificate == files / "node.pem"
    with pytest.raises(ConfigError, match=r"node\.pem: its extended key usage must have"):
        ClusterTls(section(files), "n1")


def test_an_authority_that_signs_clients_too_is_named_with_what_to_do(signed, files):
    tls = ClusterTls(section(files), "n1")
    shared, other = (
        TlsSection(verify="peer", ca_file=str(signed / f"{each}.pem")) for each in ("one", "two")
    )
    assert not tls.shared_authority(other)
    assert not tls.shared_authority(TlsSection())
    text = tls.shared_authority(shared)
    assert text.startswith("tls.ca_file and cluster_tls.ca_file have an authority in common")
    assert "'CN=one'" in text
    assert "name it alone in cluster_tls.ca_file" in text


def test_a_bad_file_is_named_with_its_key(files):
    (files / "node.key").write_text("nonsense")
    with pytest.raises(ConfigError, match=r"^cluster_tls\.key_file: .*: holds no PEM key"):
        ClusterTls(section(files), "n1")


def test_others_prove_themselves_anew_when_an_authority_is_taken_away(signed, files):
    tls = ClusterTls(section(files), "n1")
    narrowed: list[bool] = []
    tls.on_narrowed = lambda: narrowed.append(True)
    for own, believed, expected in (
        ("one", ("one", "two"), 0),  # one more
        ("two", ("one", "two"), 0),  # another certificate
        ("two", ("two",), 1),  # one less
    ):
        before = tls.certificate
        show(signed, files, own, *believed)
        assert tls.changed()
        tls.renew()
        assert not tls.changed()
        assert tls.certificate is not before
        assert len(narrowed) == expected
    (files / "node.pem").write_text("half written")
    before = tls.certificate
    with pytest.raises(ConfigError):
        tls.renew()
    assert tls.certificate is before


def test_a_revoked_certificate_is_refused_and_all_prove_themselves_anew(tmp_path):
    authority = Authority(tmp_path, "revoking")
    own = authority.sign("/CN=n1", "n1", alternative_names="DNS:n1")
    good = authority.sign("/CN=n2", "n2", alternative_names="DNS:n2").certificate.read_bytes()
    bad = authority.sign("/CN=n3", "n3", alternative_names="DNS:n3").certificate
    files = ClusterTlsSection(
        certificate_file=str(own.certificate),
        key_file=str(own.key),
        ca_file=str(authority.file),
        crl_file=str(authority.revoke()),
    )
    tls = ClusterTls(files, "n1")
    narrowed: list[bool] = []
    tls.on_narrowed = lambda: narrowed.append(True)

    def refusal(pem: bytes) -> str:
        assert tls.certificate.refuses is not None
        return tls.certificate.refuses(pem)

    assert (refusal(good), refusal(bad.read_bytes())) == ("", "")
    authority.revoke(bad)
    assert tls.changed()
    tls.renew()
    assert len(narrowed) == 1
    for _ in range(2):
        assert (refusal(good), refusal(bad.read_bytes())) == ("", "it was revoked")
    assert len(narrowed) == 2  # once more, when it was first shown
    authority.revoke(days=-1)
    tls.renew()
    assert refusal(good) == "the revocation list of its issuer has expired"
    Path(files.crl_file).write_text("nonsense")
    with pytest.raises(ConfigError, match=r"^cluster_tls\.crl_file: .*: no revocation list"):
        tls.renew()
    Path(files.crl_file).unlink()
    with pytest.raises(ConfigError, match=r"^cluster_tls\.crl_file: .*: cannot be read"):
        tls.renew()
