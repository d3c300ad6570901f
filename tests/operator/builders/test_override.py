"""Merging what a user says of a pod over what the operator says."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_operator.builders.override import merged


@pytest.mark.parametrize(
    ("base", "override", "result"),
    [
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": None}}, {"a": {"y": 2}}),
        ({"a": 1}, {"b": {"c": None, "d": 1}}, {"a": 1, "b": {"d": 1}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        (
            {"a": [{"name": "x", "v": 1}, {"name": "y"}]},
            {"a": [{"name": "z"}, {"name": "x", "w": 2}]},
            {"a": [{"name": "x", "v": 1, "w": 2}, {"name": "y"}, {"name": "z"}]},
        ),
        ({"a": [{"name": "x"}], "b": 1}, {"a": []}, {"a": [], "b": 1}),
        ({"a": []}, {"a": [{"name": "x"}]}, {"a": [{"name": "x"}]}),
        ({"a": [{"key": "x"}]}, {"a": [{"key": "y"}]}, {"a": [{"key": "y"}]}),
        ({}, {}, {}),
    ],
)
def test_what_is_said_last_counts(base: Any, override: Any, result: Any) -> None:
    before = repr(base)
    assert merged(base, override) == result
    assert repr(base) == before


def test_the_labels_by_which_pods_are_found_cannot_be_overridden(make_cluster: Any) -> None:
    from headrace_operator.builders.stateful_set import pod_template

    labels = {"app.kubernetes.io/name": None, "headrace.dev/cluster": "other", "mine": "1"}
    cluster = make_cluster({"pod": {"override": {"metadata": {"labels": labels}}}})
    found = pod_template(cluster)["metadata"]["labels"]
    assert cluster.selector.items() <= found.items()
    assert found["mine"] == "1"
