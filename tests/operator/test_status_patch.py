"""The patch that makes one status of another."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from headrace_operator.status_patch import conditions_of, merge_patch

VALUES = st.recursive(
    st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


def patched(found: object, patch: object) -> object:
    """JSON merge patch, RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(found) if isinstance(found, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = patched(result.get(key), value)
    return result


@given(OBJECTS, OBJECTS)
def test_a_patch_makes_one_of_the_other(old: dict[str, object], new: dict[str, object]) -> None:
    assert patched(old, merge_patch(old, new)) == new


@given(OBJECTS)
def test_between_the_same_there_is_nothing_to_patch(found: dict[str, object]) -> None:
    assert merge_patch(found, found) == {}


def test_the_time_of_a_condition_is_that_of_its_change() -> None:
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)]
    no = (False, "No", "")
    first = conditions_of([], times[0], 1, (True, "Yes", "well"), no, no)
    second = conditions_of(first, times[1], 2, (True, "Yes", "still"), (True, "Yes", ""), no)
    assert [each.last_transition_time[:10] for each in second] == [
        "2026-01-01",
        "2026-01-02",
        "2026-01-01",
    ]
    assert (second[0].message, second[0].observed_generation) == ("still", 2)
