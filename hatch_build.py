"""Build hook of the wheel: compiles the hot modules with mypyc.

The modules are those that `[tool.headrace.build]` in pyproject.toml names; they become one mypyc
group, so that calls between them are native. Everything generated stays below build/mypyc, which
is kept between builds: unchanged C files are not compiled again. The source tree never holds an
extension module, so a checkout on PYTHONPATH runs interpreted. The types of protobuf messages are
generated there too, from protos/: the build of headrace-protos installs the same.

Without a C compiler, or with HEADRACE_NO_COMPILE=1, the wheel is pure and one warning says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import itertools
import os
import shutil
import sys
import sysconfig
import tempfile
import threading
import tomllib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE_ROOTS = ("raftlog", "broker")
PROTOS = Path("protos")
GROUP = "headrace"
TOOLS = ("mypy", "grpcio-tools", "mypy-protobuf")  # whose versions the outcome depends on
NO_COMPILE = "HEADRACE_NO_COMPILE"
SHARED_BY = 16  # C files, from which on their headers are compiled once


class CompileOptions(NamedTuple):
    """The table `[tool.headrace.build]` of pyproject.toml.

    Attributes:
        compile: glob patterns of the modules to compile, relative to the project.
        interpreted: glob patterns of those to leave out.
        opt_level: the C compiler's -O.
        multi_file: one C file per module; rebuilds are quicker, calls between modules slower.
    """

    compile: tuple[str, ...]
    interpreted: tuple[str, ...]
    opt_level: str
    multi_file: bool


def read_options(root: Path) -> CompileOptions:
    """Read the table from the project at `root`.

    Raises:
        KeyError: the table or one of its keys is missing.
        ValueError: it has a key that nothing reads.
    """
    with (root / "pyproject.toml").open("rb") as file:
        table = dict(tomllib.load(file)["tool"]["headrace"]["build"])
    options = CompileOptions(
        compile=tuple(table.pop("compile")),
        interpreted=tuple(table.pop("interpreted")),
        opt_level=str(table.pop("opt-level")),
        multi_file=bool(table.pop("multi-file")),
    )
    if table:
        raise ValueError(f"[tool.headrace.build] has unknown keys: {', '.join(sorted(table))}")
    return options


def compiled_modules(root: Path, options: CompileOptions) -> list[str]:
    """Return the paths to compile, relative to `root`, sorted; a pattern may match nothing."""
    wanted = {path for pattern in options.compile for path in root.glob(pattern)}
    unwanted = {path for pattern in options.interpreted for path in root.glob(pattern)}
    return sorted(str(path.relative_to(root)) for path in wanted - unwanted)


def compiler_fault() -> str | None:
    """Return why C extensions cannot be built here, or None when they can."""
    from setuptools._distutils import ccompiler, errors
    from setuptools._distutils.sysconfig import customize_compiler, get_python_inc

    with tempfile.TemporaryDirectory(prefix="headrace-cc-") as directory:
        source = Path(directory) / "probe.c"
        source.write_text("#include <Python.h>\nint probe(void) { return Py_IsInitialized(); }\n")
        compiler = ccompiler.new_compiler()
        customize_compiler(compiler)
        try:
            compiler.compile([str(source)], output_dir=directory, include_dirs=[get_python_inc()])
        except (errors.CompileError, errors.DistutilsError, OSError) as error:
            return str(error)
    return None


def build_extensions(root: Path, options: CompileOptions) -> dict[str, str]:
    """Compile the modules of the project at `root`.

    Returns:
        Absolute path of each extension module -> its path within the wheel.

    Raises:
        RuntimeError: mypyc refused a module (its messages are on stdout), or the C compiler did.
    """
    target = root / "build" / "mypyc" / f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
    target.mkdir(parents=True, exist_ok=True)
    library, stamp, digest = target / "lib", target / "built.txt", _digest(root)
    built = stamp.read_text().splitlines() if stamp.exists() else [""]
    if built[0] != digest or not all((library / name).exists() for name in built[1:]):
        stamp.unlink(missing_ok=True)
        with contextlib.chdir(root):
            _generate_protos(root, target / "protos")
            outputs = _compile(_generate(compiled_modules(root, options), options, target), target)
        built = [digest, *(str(path.relative_to(library)) for path in outputs)]
        stamp.write_text("\n".join(built))
    return {str(library / name): name for name in built[1:]}


def _digest(root: Path) -> str:
    """Hash what the outcome depends on: pip builds a wheel twice, once for its metadata."""
    digest = hashlib.sha256(_tools().encode())
    sources = [path for name in SOURCE_ROOTS for path in (root / name).rglob("*.py")]
    sources += (root / PROTOS).rglob("*.proto")
    hooks = [root / "hatch_build.py", root / PROTOS / "hatch_build.py"]
    for path in sorted([*sources, *hooks, root / "pyproject.toml"]):
        digest.update(f"{path.relative_to(root)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _tools() -> str:
    """Return the versions of what writes the C files and of the headers that they include."""
    return f"{sys.version} {' '.join(f'{name} {metadata.version(name)}' for name in TOOLS)}"


def _generate_protos(root: Path, target: Path) -> None:
    """Write the package of protobuf messages below `target`, which is made anew."""
    spec = importlib.util.spec_from_file_location("protos_build", root / PROTOS / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    shutil.rmtree(target, ignore_errors=True)
    hook.generate(root / PROTOS, target)


def _generate(modules: list[str], options: CompileOptions, target: Path) -> list[Any]:
    """Let mypyc write the C files; the types of protobuf messages are there already."""
    from mypyc.build import mypycify

    os.environ["MYPYPATH"] = os.pathsep.join([*SOURCE_ROOTS, str(target / "protos")])
    flags = [
        "--config-file=",
        f"--cache-dir={target / 'mypy_cache'}",
        "--explicit-package-bases",
        "--namespace-packages",
        "--no-site-packages",  # the same C whether the dependencies are there or not
        "--ignore-missing-imports",
        "--disable-error-code=overload-cannot-match",  # stubs of generated code, without grpc's
        "--follow-imports=silent",
    ]
    try:
        extensions: list[Any] = mypycify(
            [*flags, *modules],
            opt_level=options.opt_level,
            multi_file=options.multi_file,
            group_name=GROUP,
            target_dir=str(target / "c"),
        )
    except SystemExit as error:
        raise RuntimeError("mypyc refused a module; see its messages above") from error
    finally:
        del os.environ["MYPYPATH"]
    return extensions


def _compile(extensions: list[Any], target: Path) -> list[Path]:
    """Run the C compiler on what changed, on all cores; return the extension modules."""
    from setuptools.command.build_ext import build_ext
    from setuptools.dist import Distribution

    jobs = os.cpu_count() or 1

    class CachingBuildExt(build_ext):  # type: ignore[misc]
        """Compiles a C file only when it, a generated header or a flag differs from last time."""

        def build_extensions(self) -> None:
            digest = hashlib.sha256(_tools().encode())
            for header in sorted((target / "c").rglob("*.h")):
                digest.update(header.read_bytes())
            plain = self.compiler.compile
            sources = [source for extension in self.extensions for source in extension.sources]

            def compile_one(source: str, **flags: Any) -> list[str]:
                content = Path(source).read_bytes() + repr(sorted(flags.items(), key=str)).encode()
                key = digest.hexdigest() + hashlib.sha256(content).hexdigest()
                objects: list[str] = self.compiler.object_filenames(
                    [source], output_dir=flags.get("output_dir")
                )
                stamp = Path(objects[0] + ".key")
                if Path(objects[0]).exists() and stamp.exists() and stamp.read_text() == key:
                    return objects
                plain([source], **shared.use(source, flags))
                stamp.write_text(key)
                return objects

            def compile_all(sources: list[str], **flags: Any) -> list[str]:
                with ThreadPoolExecutor(jobs) as pool:
                    results = list(pool.map(lambda source: compile_one(source, **flags), sources))
                return [name for objects in results for name in objects]

            with tempfile.TemporaryDirectory(prefix="headers-", dir=target) as directory:
                shared = SharedHeaders(plain, sources, Path(directory))
                self.compiler.compile = compile_all
                super().build_extensions()

    command = CachingBuildExt(Distribution({"name": GROUP, "ext_modules": extensions}))
    command.build_lib = str(target / "lib")
    command.build_temp = str(target / "o")
    command.parallel = jobs
    command.ensure_finalized()
    try:
        command.run()
    except Exception as error:
        raise RuntimeError(f"the C compiler failed: {error}") from error
    return [Path(name) for name in command.get_outputs()]


class SharedHeaders:
    """Headers with which many C files begin, compiled once: they are longer than most files.

    A compiler that cannot use what was compiled reads the headers instead. Thread-safe.
    """

    def __init__(
        self, compile_plain: Callable[..., list[str]], sources: list[str], directory: Path
    ) -> None:
        self._compile = compile_plain
        self._directory = directory
        self._lock = threading.Lock()
        self._made: dict[str, Path] = {}  # by what is in it: headers and flags
        counts = Counter(leading_includes(Path(source).read_text()) for source in sources)
        self._shared = {text for text, count in counts.items() if text and count >= SHARED_BY}

    def use(self, source: str, flags: dict[str, Any]) -> dict[str, Any]:
        """Return the compiler's flags for a C file, with the compiled headers where they fit."""
        text = leading_includes(Path(source).read_text())
        if text not in self._shared:
            return flags
        plain = {name: value for name, value in flags.items() if name != "depends"}
        with self._lock:
            key = text + repr(sorted(plain.items(), key=str))
            header = self._made.get(key)
            if header is None:
                header = self._made[key] = self._make(text, plain)
        return {**flags, "extra_postargs": [*flags["extra_postargs"], "-include", str(header)]}

    def _make(self, text: str, flags: dict[str, Any]) -> Path:
        header = self._directory / f"{len(self._made)}.c"
        header.write_text(text)
        (made,) = self._compile(
            [str(header)],
            **{**flags, "output_dir": str(self._directory), "extra_preargs": ["-x", "c-header"]},
        )
        Path(made).rename(f"{header}.gch")
        return header


def leading_includes(source: str) -> str:
    """Return the `#include` lines that a C file begins with, "" for none."""
    lines = source.splitlines(keepends=True)
    return "".join(itertools.takewhile(lambda line: line.startswith("#include"), lines))


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled modules to a wheel that is not an editable one."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile and register the extension modules; see the module's docstring."""
        if version == "editable":
            return
        root = Path(self.root)
        reason = self._why_not()
        if reason is not None:
            self.app.display_warning(
                f"headrace: building without compiled modules, several times slower: {reason}"
            )
            return
        build_data["force_include"].update(build_extensions(root, read_options(root)))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def _why_not(self) -> str | None:
        if os.environ.get(NO_COMPILE, "") not in ("", "0"):
            return f"{NO_COMPILE} is set"
        fault = compiler_fault()
        return None if fault is None else f"no working C compiler ({fault})"
