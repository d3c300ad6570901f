"""Location of a table: a local directory, or a URI of an object store.

Object stores are reached through the library `deltalake` for all that is done, so that one set of
options serves. The options hold secrets: they come from a file that each process reads, and only
the path of that file is in plans.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from headrace_pipeline.error import OptionError, PipelineError
from headrace_pipeline.limits import STORAGE_OPTIONS_BYTES_MAX, STORE_ERROR_CHARACTERS

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_FILE: Final = "storageOptionsFile"


class Place(NamedTuple):
    """Location of a table; can be pickled and printed."""

    uri: str  # an absolute local path, or SCHEME://...
    # path of a JSON object with the options of the object store, names as `deltalake` has them;
    # None for none
    options_file: str | None = None

    @property
    def local(self) -> bool:
        """True if it is a directory of this machine, or a mounted one."""
        return "://" not in self.uri

    def options(self) -> dict[str, str]:
        """Read the options of the object store.

        Raises:
            OptionError: the file cannot be read, or is no object of texts.
        """
        return {} if self.options_file is None else _read_options(self.options_file)

    def files(self) -> fs.FileSystem:
        """Return a file system with the table's directory as its root.

        Raises:
            OptionError: the options cannot be read.
        """
        if self.local:
            return fs.SubTreeFileSystem(self.uri, fs.LocalFileSystem())
        return fs.PyFileSystem(DeltaStorageHandler(self.uri, self.options()))

    @contextmanager
    def told(self) -> Iterator[None]:
        """Say in one line what an object store refuses, and what to look at.

        Its library writes several, in colours, and does not name the table.

        Raises:
            PipelineError: in place of an OSError, where the place is an object store.
        """
        try:
            yield
        except OSError as error:
            if self.local:
                raise
            where = self.options_file or f"a {_FILE}, which is not given"
            raise PipelineError(
                f"{self.uri}: the object store fails: {_plain(str(error))}: look at the URI, and "
                f"at endpoint, region and keys in {where}"
            ) from error

    def path(self, relative: str) -> str:
        """Return where a file of the table is."""
        return f"{self.uri.rstrip('/')}/{relative}"


def place_of(uri: str, options_file: str | None = None) -> Place:
    """Return the place that a user means.

    Args:
        uri: a path, `file:` URI, or URI of an object store.
        options_file: see `Place`.

    Raises:
        OptionError: it is empty, or a URI with a secret in it.
    """
    if not uri:
        raise OptionError("table", "must be a path or a URI")
    if "://" not in uri:
        return Place(os.path.abspath(uri), options_file)
    parts = urlsplit(uri)
    if "@" in parts.netloc and ":" in parts.netloc.split("@")[0]:
        raise OptionError("table", f"must hold no password: write it to the {_FILE}")
    if parts.scheme == "file":
        return Place(os.path.abspath(unquote(parts.path)), options_file)
    return Place(uri.rstrip("/"), options_file)


def sync_local(path: str) -> None:
    """Force a local file or directory to the disk.

    Raises:
        OSError: the disk says no.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_options(path: str) -> dict[str, str]:
    try:
        with Path(path).open("rb") as file:
            data = file.read(STORAGE_OPTIONS_BYTES_MAX + 1)
        if len(data) > STORAGE_OPTIONS_BYTES_MAX:
            raise OptionError(_FILE, f"{path} is larger than {STORAGE_OPTIONS_BYTES_MAX} bytes")
        return msgspec.json.decode(data, type=dict[str, str])
    except OSError as error:
        raise OptionError(_FILE, f"{path} cannot be read: {error}") from None
    except msgspec.DecodeError:  # whose text might hold a secret
        raise OptionError(_FILE, f"{path} must be a JSON object of texts") from None


def _plain(text: str) -> str:
    """Return a message of the library's in one line."""
    lines = (line.strip(" \t\u21b3") for line in _COLOUR.sub("", text).splitlines())
    return ": ".join(filter(None, lines))[:STORE_ERROR_CHARACTERS]
