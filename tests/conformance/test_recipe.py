from __future__ import annotations

from pathlib import Path

import pytest
from conformance.recipe import RecipeError, load_recipes

SUITE = '[[suite]]\nname = "client"\nversion = "1"\ntests = ["t"]\nci = ["t"]\n'


def written(path: Path, text: str) -> Path:
    file = path / "suites.toml"
    file.write_text("requirements = []\n" + text, encoding="utf-8")
    return file


def test_the_suites_can_be_read() -> None:
    names = [suite.name for suite in load_recipes().suite]
    assert names == ["aiormq", "aio-pika", "amqpstorm", "amqp", "kombu", *names[5:]]
    assert len(set(names)) == len(names)


def test_what_is_expected_depends_on_the_broker(tmp_path: Path) -> None:
    expected = '[[suite.expected]]\ntests = ["t"]\nreason = "no t"\nbrokers = ["headrace"]\n'
    (suite,) = load_recipes(written(tmp_path, SUITE + expected)).suite
    assert suite.expected_for("headrace") == [("t", "no t")]
    assert suite.expected_for("rabbitmq") == []
    assert suite.requirement == "client==1"


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("mistake = 1\n", "mistake"),
        ('[[suite.expected]]\ntests = ["t"]\nreason = ""\n', "reason"),
        ('[[suite.deselected]]\ntests = ["t"]\nreason = "r"\nbrokers = ["x"]\n', "brokers"),
    ],
)
def test_a_wrong_recipe_is_refused(tmp_path: Path, more: str, text: str) -> None:
    with pytest.raises(RecipeError, match=text):
        load_recipes(written(tmp_path, SUITE + more))
