"""Disks that become slow for one node, by a library preloaded into its process."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

SYNCS: Final = Path(__file__).with_name("disk_delay.c")
READS: Final = Path(__file__).with_name("read_delay.c")


class SlowDisk:
    """The delay of one node's disk, which starts at none.

    Args:
        directory: where the control file and the compiled library go.
        source: which calls are slow: SYNCS or READS.

    Raises:
        FileNotFoundError: there is no C compiler.
    """

    def __init__(self, directory: Path, source: Path = SYNCS) -> None:
        self._control = directory / "disk_delay"
        self._library = directory / "disk_delay.so"
        directory.mkdir(parents=True, exist_ok=True)
        self._control.write_bytes(struct.pack("=i", 0))
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise FileNotFoundError("no C compiler to build the slow disk with; install gcc")
        options = ("-shared", "-fPIC", "-O1", "-Wall", "-Werror")
        target = ("-o", str(self._library), str(source), "-ldl")
        subprocess.run([compiler, *options, *target], check=True)

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the process that is to use it."""
        return {"LD_PRELOAD": str(self._library), "CHAOS_DISK_DELAY_FILE": str(self._control)}

    def set_delay(self, milliseconds: int) -> None:
        """Delay each of the calls from now on, and end the one that waits if it waited longer."""
        with self._control.open("r+b") as file:
            file.write(struct.pack("=i", milliseconds))
