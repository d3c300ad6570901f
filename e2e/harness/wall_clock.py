"""Wall clocks that are wrong for some nodes, by a library preloaded into their processes."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("clock_shift.c")


class WallClock:
    """The wall clock of nodes that are started with `environment`; it is right at first.

    Args:
        directory: where the control file and the compiled library go.

    Raises:
        FileNotFoundError: there is no C compiler.
    """

    def __init__(self, directory: Path) -> None:
        self._control = directory / "clock_shift"
        self._library = directory / "clock_shift.so"
        directory.mkdir(parents=True, exist_ok=True)
        self._control.write_bytes(struct.pack("=q", 0))
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise FileNotFoundError("no C compiler to build the wrong clock with; install gcc")
        options = ("-shared", "-fPIC", "-O1", "-Wall", "-Werror")
        target = ("-o", str(self._library), str(SOURCE), "-ldl")
        subprocess.run([compiler, *options, *target], check=True)

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the processes that are to go by it."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_SHIFT_FILE": str(self._control)}

    def shift(self, milliseconds: int) -> None:
        """Shift the time that it shows by so much from now on."""
        with self._control.open("r+b") as file:
            file.write(struct.pack("=q", milliseconds))
