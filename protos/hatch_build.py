"""Build hook of the wheel: generates the package headrace_protos from the .proto files beside it.

Names on the wire and in descriptors stay the canonical ones (headrace.broker.v1.Message in
headrace/broker/v1/message.proto); only the modules live in headrace_protos. So the imports between
generated modules are rewritten, and the module that a message class names: pickle finds it there.
"""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE: Final = "headrace_protos"
SOURCE_ROOT: Final = "headrace"  # folder of the .proto files, and the first part of their names
PLUGINS: Final = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")  # commands of mypy-protobuf

_IMPORT: Final = re.compile(rf"^from {SOURCE_ROOT}\.", re.MULTILINE)
_MODULE: Final = re.compile(rf"'{SOURCE_ROOT}\.([\w.]+_pb2)'")
_SERVICE: Final = re.compile(r"^service ", re.MULTILINE)


def proto_files(root: Path) -> list[Path]:
    """Return all .proto files of the project at `root`, sorted."""
    return sorted((root / SOURCE_ROOT).rglob("*.proto"))


def generate(root: Path, target: Path) -> None:
    """Write the package below `target` for the .proto files of the project at `root`.

    Raises:
        RuntimeError: a .proto file is wrong, or a plugin of protoc is missing.
    """
    with TemporaryDirectory(prefix="headrace-protos-") as plain:
        _compile(root, plain)
        generated = Path(plain) / SOURCE_ROOT
        for path in sorted(generated.rglob("*.py*")):
            place = target / PACKAGE / path.relative_to(generated)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(_rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")
    package = target / PACKAGE
    (package / "py.typed").touch()
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        source = "/".join((SOURCE_ROOT, *folder.relative_to(package).parts))
        text = f'"""Generated from {source}/ by the build of headrace-protos; do not edit."""\n'
        (folder / "__init__.py").write_text(text, encoding="utf-8")


def _rewritten(text: str) -> str:
    """Return a generated module whose imports and classes name modules of the package."""
    text = _IMPORT.sub(f"from {PACKAGE}.", text)
    return _MODULE.sub(rf"'{PACKAGE}.\1'", text)


def _compile(root: Path, target: str) -> None:
    """Generate messages and types of all files, and gRPC's modules of those with services."""
    files = proto_files(root)
    serving = [path for path in files if _SERVICE.search(path.read_text(encoding="utf-8"))]
    _protoc(root, [f"--python_out={target}", f"--mypy_out=quiet:{target}"], files)
    _protoc(root, [f"--grpc_python_out={target}", f"--mypy_grpc_out=quiet:{target}"], serving)


def _protoc(root: Path, outputs: list[str], files: list[Path]) -> None:
    from grpc_tools import protoc

    plugins = [f"--plugin={name}={_plugin(name)}" for name in PLUGINS]
    if protoc.main(["protoc", f"-I{root}", *plugins, *outputs, *map(str, files)]) != 0:
        raise RuntimeError("protoc refused a .proto file; see its messages above")


def _plugin(name: str) -> str:
    """Return the path of a plugin: beside this Python, whose environment may not be on PATH."""
    places = [sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise RuntimeError(f"no {name}, which mypy-protobuf installs, in {os.pathsep.join(places)}")
    return found


class GenerateHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the generated package to the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate the package where the wheel's builder finds it until `finalize`."""
        self._folder = TemporaryDirectory(prefix="headrace-protos-")
        generate(Path(self.root), Path(self._folder.name))
        build_data["force_include"][str(Path(self._folder.name) / PACKAGE)] = PACKAGE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was generated."""
        self._folder.cleanup()
