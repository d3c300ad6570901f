"""Colours of one plot can be told apart, also by people who see fewer of them.

How colours look to these is by G. M. Machado, M. M. Oliveira, L. A. F. Fernandes, "A
Physiologically-based Model for Simulation of Color Vision Deficiency", 2009, severity 1.
"""

from __future__ import annotations

import itertools
import re
from importlib import resources

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[np.float64]

SEEN = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])

ACCOUNTS = ("a0", "a1", "a2", "a3", "a4", "a-other")
CLASSES = ("memory", "disk", "raft", "consumers", "acks", "failures", "burst", "fine")
LINES = ("in", "out", "backlog")
LEAST = 14.0  # of CIE 76; two colours that differ by 2.3 are just told apart side by side
CONTRAST = 4.5  # of text, as WCAG has it


def themes() -> dict[str, dict[str, str]]:
    """The variables of the light theme, and of the dark one."""
    css = resources.files("headrace_pipeline.report").joinpath("page.css").read_text("utf-8")
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks[:2])
    return {"light": light, "dark": dark}


def linear(colour: str) -> Array:
    part = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def lab(rgb: Array) -> Array:
    part = XYZ @ np.clip(rgb, 0, 1) / WHITE
    x, y, z = np.where(part > 0.008856, np.cbrt(part), 7.787 * part + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SEEN)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("names", [ACCOUNTS, CLASSES, LINES], ids=["accounts", "classes", "lines"])
def test_no_two_colours_of_a_plot_look_alike(
    names: tuple[str, ...], theme: str, sight: str
) -> None:
    colours = themes()[theme]
    seen = {name: lab(SEEN[sight] @ linear(colours[name])) for name in names}
    for one, other in itertools.combinations(names, 2):
        distance = float(np.linalg.norm(seen[one] - seen[other]))
        assert distance >= LEAST, f"{one} and {other}: {distance:.1f}"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("text", ["text", "muted", "accent"])
def test_texts_stand_out_from_their_ground(theme: str, text: str) -> None:
    colours = themes()[theme]
    for ground in ("ground", "surface"):
        low, high = sorted(XYZ[1] @ linear(colours[each]) for each in (text, ground))
        assert (high + 0.05) / (low + 0.05) >= CONTRAST
