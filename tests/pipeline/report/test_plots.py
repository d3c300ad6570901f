"""Plots show the given values: they are read back."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_pipeline.report import plots
from headrace_pipeline.report.plots import Axis, Run, Series

AXIS = Axis(100.0, "100/s", "50")
VALUES = st.lists(st.floats(0, 100), min_size=1, max_size=40)


def paths(svg: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter("path"))


def points(path: str) -> list[tuple[float, float]]:
    """The corners of a line."""
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.e-]+) (\d+)", path)]


@given(VALUES)
def test_a_line_goes_through_its_values_in_the_middle_of_their_steps(values: list[float]) -> None:
    (path,) = paths(plots.line_plot("w", [Series("s", "out", values)], AXIS, (), 50))
    drawn = points(path.attrib["d"])
    assert len(drawn) == len(values)
    for number, ((x, y), value) in enumerate(zip(drawn, values, strict=True)):
        assert x == pytest.approx((number + 0.5) / len(values) * 1000, rel=1e-3)
        assert (1000 - y) / 10 == pytest.approx(value, abs=0.051)
    assert [float(each) for each in path.attrib["data-values"].split()] == pytest.approx(
        values, rel=1e-3, abs=1e-9
    )


def test_what_is_not_known_is_a_gap_and_not_nought() -> None:
    values = [10.0, None, 30.0, 40.0]
    (path,) = paths(plots.line_plot("w", [Series("s", "out", values)], AXIS, (), 50))
    assert path.attrib["d"].count("M") == 2
    assert len(points(path.attrib["d"])) == 3
    assert path.attrib["data-values"] == "10 - 30 40"


def test_an_area_is_closed_at_the_ground() -> None:
    (path,) = paths(plots.line_plot("w", [Series("s", "in area", [50.0, 100.0])], AXIS, (), 50))
    assert path.attrib["d"] == "M250 500L750 0L750 1000H250Z"


def test_values_beyond_the_axis_stay_in_the_picture() -> None:
    (path,) = paths(plots.line_plot("w", [Series("s", "out", [-5.0, 500.0])], AXIS, (), 50))
    assert [y for _, y in points(path.attrib["d"])] == [1000, 0]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=30))
def test_stacked_values_stand_on_each_other(pairs: list[tuple[int, int]]) -> None:
    below, above = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    series = [Series("below", "a0", below), Series("above", "a1", above)]
    drawn = {p.attrib["data-name"]: p for p in paths(plots.stack_plot("w", series, AXIS, (), 50))}
    assert set(drawn) == {each.name for each in series if any(each.values)}
    for each in series:
        if each.name in drawn:
            area = sum(v or 0.0 for v in each.values) * 10 * (1000 / len(pairs))
            assert _area(drawn[each.name].attrib["d"]) == pytest.approx(area, rel=0.02, abs=60)


def _area(path: str) -> float:
    """Return the area of polygons of horizontal and vertical lines, by the shoelace formula."""
    total = 0.0
    for part in path.split("Z")[:-1]:
        corners: list[tuple[float, float]] = []
        for move, first, second in re.findall(r"([MHV])([\d.e+]+)(?: (\d+))?", part):
            x, y = corners[-1] if corners else (0.0, 0.0)
            corner = {"M": (first, second), "H": (first, y), "V": (x, first)}[move]
            corners.append((float(corner[0]), float(corner[1])))
        around = zip(corners, corners[1:] + corners[:1], strict=True)
        total += abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in around)) / 2
    return total


def test_a_stack_takes_what_is_unknown_as_nothing() -> None:
    assert paths(plots.stack_plot("w", [Series("s", "a0", [None, 0.0])], AXIS, (), 50)) == []


def test_a_strip_has_each_stretch_in_its_place_and_in_words() -> None:
    runs = [Run(0.0, 0.25, "fine", "until six"), Run(0.5, 1.0, "c-x", "later", "slow", 2)]
    svg = ElementTree.fromstring(plots.strip("what", runs, 18))
    gap, first, second = svg.findall("rect")
    assert (gap.attrib["class"], gap.attrib["width"]) == ("gap", "100%")
    assert (first.attrib["x"], first.attrib["width"]) == ("0.000%", "25.000%")
    assert (second.attrib["height"], second.attrib["y"]) == ("12", "6")
    assert first.findtext("title") == "until six"
    assert svg.attrib["aria-label"] == "what"


def test_a_label_is_written_only_where_it_fits() -> None:
    def labels(width: float, level: int = 3) -> list[str | None]:
        svg = plots.strip("w", [Run(0, width, "c-x", "t", "consumers", level)])
        return [each.text for each in ElementTree.fromstring(svg).iter("text")]

    assert labels(0.5) == ["consumers"]
    assert labels(0.05) == []
    assert labels(0.5, level=1) == []


def test_parts_of_a_bar_are_as_long_as_their_values() -> None:
    svg = ElementTree.fromstring(plots.bar("w", [("a", "a0", 30), ("b", "a1", 20)], 100))
    rects = svg.findall("rect")
    assert [r.attrib["width"] for r in rects] == ["30.000%", "20.000%"]
    assert [r.attrib["x"] for r in rects] == ["0.000%", "30.000%"]


@pytest.mark.parametrize(
    ("peak", "tone"), [(0.5, "within"), (0.8, "near"), (1.0, "over"), (3.0, "over")]
)
def test_a_range_tells_how_near_its_peak_comes(peak: float, tone: str) -> None:
    svg = ElementTree.fromstring(plots.range_bar("w", 0.4, peak, 1.0, 1.25))
    usual = svg.findall("rect")[1]
    assert usual.attrib["class"] == f"usual {tone}"
    assert usual.attrib["width"] == "32.00%"
    places = [float(each.attrib["x2"].rstrip("%")) for each in svg.findall("line")]
    assert places[1] == pytest.approx(min(peak / 1.25, 1.0) * 100)
    assert places[2] == 80


def test_a_move_has_its_dots_where_the_numbers_are() -> None:
    svg = ElementTree.fromstring(plots.move("w", 2, 8, 10))
    now, then = svg.findall("circle")
    assert (now.attrib["cx"], then.attrib["cx"]) == ("21.20%", "78.80%")


def test_texts_in_pictures_are_escaped() -> None:
    bad = "</svg><script>"
    svg = str(plots.line_plot(bad, [Series(bad, "in", [1.0])], Axis(1, bad, bad), (), 10))
    svg += plots.strip(bad, [Run(0, 1, "c-x", bad, bad)]) + plots.bar(bad, [(bad, "a0", 1)], 1)
    assert "<script" not in svg
