"""The file with the join secrets of a node."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headrace_broker.config.configuration import ClusterNode, ClusterSection, ConfigError
from headrace_broker.runtime.security.join_secret import JoinSecretFile, join_secret_file

OLD = "0123456789abcdef0123456789abcdef"
NEW = "fedcba9876543210fedcba9876543210"


def section(path: Path | str, required: bool = True) -> ClusterSection:
    nodes = (ClusterNode(id=1, name="n1", address="10.0.0.1:7100"),)
    return ClusterSection(nodes=nodes, join_secret_file=str(path), join_secret_required=required)


def test_no_file_is_no_secret() -> None:
    assert join_secret_file(section("")) is None


def test_secrets_are_replaced_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(f"{OLD}\r\n")
    found = JoinSecretFile(section(path))
    narrowed: list[tuple[bytes, ...]] = []
    found.on_narrowed = lambda: narrowed.append(found.secrets.accepted)
    assert (found.secrets.accepted, found.secrets.required) == ((OLD.encode(),), True)
    assert not found.changed()
    for text, expected in (
        (f"{OLD}\n{NEW}\n", (OLD, NEW)),
        (f"{NEW}\n{OLD}\n", (NEW, OLD)),
        (f"{NEW}\n", (NEW,)),
    ):
        path.unlink()
        path.write_text(text)
        assert found.changed()
        found.renew()
        assert found.secrets.accepted == tuple(each.encode() for each in expected)
    assert narrowed == [(NEW.encode(),)]  # streams are opened anew once the old one is gone


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must hold a secret of 32 bytes"),
        ("short", "must hold a secret of 32 bytes"),
        (f"{OLD}\nshort", "must hold a secret of 32 bytes"),
        ("x" * 5000, "4096 bytes in all"),
        (f"{OLD}\n{NEW}\n{OLD}x", "holds 3 secrets, and 2 may count at once"),
    ],
)
def test_what_is_no_secret_is_refused_without_being_shown(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "secret"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem) as refused:
        JoinSecretFile(section(path))
    assert str(refused.value).startswith(f"cluster.join_secret_file: {path}")
    assert OLD not in str(refused.value)


def test_a_file_that_goes_bad_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(OLD)
    found = JoinSecretFile(section(path))
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        found.renew()
    assert found.secrets.accepted == (OLD.encode(),)


def test_letting_nodes_in_without_proof_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "secret"
    path.write_text(OLD)
    with caplog.at_level(logging.WARNING):
        found = JoinSecretFile(section(path, required=False))
    assert not found.secrets.required
    assert "cluster.join_secret_required is false" in caplog.text
