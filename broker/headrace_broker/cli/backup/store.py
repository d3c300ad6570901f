"""Stores of backups: a directory, or a path of an object store.

Both give the same promise: a file that has its name is whole. In a directory it is written under
another name, synced and renamed; an object is there once its upload is complete.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

PART: Final = ".part"  # at the end of the name of a file that is being written


class StoreError(Exception):
    """Files cannot be read or written there; the text says why."""


class Store(ABC):
    """Files by their names, with "/" between folders."""

    place: str  # where it is, for people

    @abstractmethod
    def create(self, name: str) -> Any:
        """Return a context with a file to write, which has its name once that is left in order.

        What has the name before is replaced then.
        """

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Open a file for reading; FileNotFoundError where there is none."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Return the bytes of a file, -1 where there is none."""

    @abstractmethod
    def remove_folder(self, name: str) -> None:
        """Remove a folder with all that is in it; one that is not there is no error."""

    def write(self, name: str, data: bytes) -> None:
        """Write a small file."""
        with self.create(name) as out:
            out.write(data)

    def read(self, name: str) -> bytes:
        """Read a small file; FileNotFoundError where there is none."""
        with self.open(name) as source:
            return source.read()


class DirectoryStore(Store):
    """A directory, whose files only their owner may read: messages are nobody else's business."""

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._path = path

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """See `Store`."""
        path = self._path / name
        self._make(path.parent)
        part = path.with_name(path.name + PART)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
        _sync(path.parent)

    def _make(self, folder: Path) -> None:
        """Make a folder and those above it, as far as they are of the backup."""
        if folder != self._path:
            self._make(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
        else:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def open(self, name: str) -> BinaryIO:
        """See `Store`."""
        return (self._path / name).open("rb")

    def size(self, name: str) -> int:
        """See `Store`."""
        try:
            return (self._path / name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return -1

    def remove_folder(self, name: str) -> None:
        """See `Store`."""
        path = self._path / name
        if path.is_dir():
            shutil.rmtree(path)


class ObjectStore(Store):
    """A path of an object store, through fsspec: s3://BUCKET/PATH, gs://BUCKET/PATH and others."""

    def __init__(self, url: str) -> None:
        core = _fsspec(url)
        self.place = url
        try:
            self._files, self._root = core.url_to_fs(url)
        except ImportError as error:  # the driver of this kind of store, which fsspec names
            text = f"{url}: {error}. With Headrace: pip install 'headrace[objectstore]'"
            raise StoreError(text) from error
        except ValueError as error:
            raise StoreError(f"{url}: {error}") from error
        self._has_folders = "file" in self._files.protocol  # elsewhere a name may have any "/"

    def _full(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """See `Store`."""
        path = self._full(name)
        if self._has_folders:
            with self._driver():
                self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        with self._driver():
            out = self._files.open(path, "wb", autocommit=False)
        try:
            yield _Driven(out, self._driver)  # type: ignore[misc]  # it is written to only
        except BaseException:
            with contextlib.suppress(Exception):  # what went wrong before says more
                out.discard()
            raise
        with self._driver():
            out.close()
            out.commit()
            self._files.invalidate_cache()

    def open(self, name: str) -> BinaryIO:
        """See `Store`."""
        with self._driver():
            found: BinaryIO = self._files.open(self._full(name), "rb")
        return found

    def size(self, name: str) -> int:
        """See `Store`."""
        try:
            with self._driver():
                return int(self._files.info(self._full(name))["size"])
        except FileNotFoundError:
            return -1

    def remove_folder(self, name: str) -> None:
        """See `Store`."""
        path = self._full(name)
        with self._driver():
            if self._files.exists(path):
                self._files.rm(path, recursive=True)

    @contextmanager
    def _driver(self) -> Iterator[None]:
        """Name the place in what a driver complains of; each has errors of its own."""
        try:
            yield
        except FileNotFoundError:
            raise
        except Exception as error:
            raise StoreError(f"{self.place}: {type(error).__name__}: {error}") from error


class _Driven:
    """A file of an object store that is written."""

    def __init__(self, out: Any, driver: Callable[[], AbstractContextManager[None]]) -> None:
        self._out = out
        self._driver = driver

    def write(self, data: bytes) -> int:
        with self._driver():
            return int(self._out.write(data))


def open_store(place: str) -> Store:
    """Return the store at a path or URL; StoreError for an unknown store or a missing driver."""
    if "://" in place:
        return ObjectStore(place)
    return DirectoryStore(Path(place))


def _fsspec(url: str) -> Any:
    try:
        return importlib.import_module("fsspec.core")
    except ImportError as error:
        text = f"{url}: object stores need fsspec: pip install 'headrace[objectstore]'"
        raise StoreError(text) from error


def _sync(directory: Path) -> None:
    """Sync a directory, so that its names survive a loss of power."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
