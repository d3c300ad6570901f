"""The generated package: what its wheel and sdist hold, and what its code asks for."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pickle
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZipFile

import pytest
from google.protobuf.message import Message

import headrace_protos
from headrace_broker.model import build_info

ROOT = Path(__file__).resolve().parents[2]
PROTOS = ROOT / "protos"
INSTALLED = Path(headrace_protos.__file__).parent


def table(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def stems() -> dict[str, bool]:
    """Path of each .proto file below headrace/, without suffix -> whether it has a service."""
    return {
        path.relative_to(PROTOS / "headrace").with_suffix("").as_posix(): "\nservice "
        in path.read_text(encoding="utf-8")
        for path in (PROTOS / "headrace").rglob("*.proto")
    }


def expected_names() -> set[str]:
    """Files of the package, relative to it."""
    found = {"py.typed"}
    for stem, serving in stems().items():
        kinds = ("_pb2", "_pb2_grpc") if serving else ("_pb2",)
        found |= {f"{stem}{kind}{suffix}" for kind in kinds for suffix in (".py", ".pyi")}
        parents = Path(stem).parents
        found |= {(parent / "__init__.py").as_posix() for parent in parents}
    return found


def module_name(stem: str) -> str:
    return "headrace_protos." + stem.replace("/", ".") + "_pb2"


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def build(project: Path, kind: str, folder: Path) -> Path:
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    [built] = folder.iterdir()
    return built


def packaged_names(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert all(name.startswith("headrace_protos/") for name in names)
    return {name.removeprefix("headrace_protos/") for name in names}


def load_hook() -> ModuleType:
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("protos_hook", PROTOS / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_wheel_holds_code_and_types_of_every_proto_file(tmp_path: Path) -> None:
    assert packaged_names(build(PROTOS, "wheel", tmp_path)) == expected_names()


def test_an_sdist_gives_the_same_wheel(tmp_path: Path) -> None:
    sdist = build(PROTOS, "sdist", tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        assert not [name for name in archive.getnames() if "_pb2" in name]
        archive.extractall(tmp_path, filter="data")
    project = tmp_path / sdist.name.removesuffix(".tar.gz")
    assert packaged_names(build(project, "wheel", tmp_path / "wheel")) == expected_names()


def test_what_is_installed_is_of_the_proto_files_that_are_here(tmp_path: Path) -> None:
    load_hook().generate(PROTOS, tmp_path)
    for name in sorted(expected_names()):
        fresh = (tmp_path / "headrace_protos" / name).read_text(encoding="utf-8")
        assert (INSTALLED / name).read_text(encoding="utf-8") == fresh, f"{name}: make protos"


def test_a_proto_file_that_is_wrong_fails_the_build(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "headrace" / "broker" / "v1"
    place.mkdir(parents=True)
    (place / "wrong.proto").write_text('syntax = "proto3";\nmessage Wrong { Absent field = 1; }\n')
    with pytest.raises(RuntimeError, match="protoc refused"):
        load_hook().generate(tmp_path, tmp_path / "out")
    assert '"Absent" is not defined' in capfd.readouterr().err


@pytest.mark.parametrize("stem", sorted(stems()))
def test_messages_keep_their_names_on_the_wire_and_name_the_module_they_are_in(stem: str) -> None:
    module = importlib.import_module(module_name(stem))
    package = "headrace." + ".".join(stem.split("/")[:-1])
    assert module.DESCRIPTOR.name == f"headrace/{stem}.proto"
    assert module.DESCRIPTOR.package == package
    for name in module.DESCRIPTOR.message_types_by_name:
        kind: type[Message] = getattr(module, name)
        assert kind.DESCRIPTOR.full_name == f"{package}.{name}"
        assert kind.__module__ == module.__name__
        assert pickle.loads(pickle.dumps(kind())) == kind()


def test_generated_modules_import_each_other_and_grpc_and_protobuf_only() -> None:
    found = set()
    for path in INSTALLED.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                found.add(node.module.partition(".")[0])
    assert found - set(sys.stdlib_module_names) == {"grpc", "google", "headrace_protos"}


@pytest.mark.parametrize("folder", ["protos", "client", "."])
def test_the_generated_code_runs_with_the_oldest_versions_that_are_allowed(folder: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in INSTALLED.rglob("*_pb2*.py")]
    protobuf = {match[1] for text in texts for match in re.finditer(r"Version: ([\d.]+)\n", text)}
    grpc = {match[1] for text in texts for match in re.finditer(r"_VERSION = '([\d.]+)'", text)}
    wanted = dict(
        each.split(">=")
        for each in table(ROOT / folder)["project"]["dependencies"]
        if each.startswith(("protobuf>=", "grpcio>="))
    )
    for name, versions in (("protobuf", protobuf), ("grpcio", grpc)):
        assert versions
        assert version(wanted[name]) >= max(map(version, versions))


def test_builds_use_one_compiler_everywhere() -> None:
    own = set(table(PROTOS)["build-system"]["requires"])
    assert own <= set(table(ROOT)["build-system"]["requires"])
    [compiler] = [each for each in own if each.startswith("grpcio-tools")]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert compiler in constraints


def test_everything_takes_the_protocols_that_are_here() -> None:
    assert table(PROTOS)["project"]["version"] == build_info.VERSION
    for folder in (".", "client", "pipeline"):
        names = table(ROOT / folder)["project"]["dependencies"]
        assert f"headrace-protos>={build_info.VERSION}" in names
