"""Options of a run, as options of pytest."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from e2e.kubernetes.command import SCENARIO_MINUTES

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts" / "headrace"
NEEDED: Final = (
    "needs KUBECONFIG: a cluster whose administrator it names, that takes images by --load "
    "(or has them: --broker-image, --operator-image); see e2e/kubernetes/README.md"
)

# Options with their default and what they are for.
OPTIONS: Final[dict[str, tuple[Any, str]]] = {
    "--builder": ("docker", "builds the images: docker, podman or buildah, and its own options"),
    "--build-arg": ([], "NAME=VALUE for the Dockerfiles, such as BASE=...; may be repeated"),
    "--build-option": ([], "passed to the builder as it is; may be repeated"),
    "--load": ("", "gives the cluster an image, for instance: kind load image-archive {archive}"),
    "--broker-image": ("", "an image that the cluster can get; it is not built then"),
    "--operator-image": ("", "likewise"),
    "--programs": ("build/helm", "folder with helm3, helm4 and kubectl, as `make helm` fills it"),
    "--helm": ("helm4", "helm3 or helm4"),
    "--storage": ("auto", "auto, volumes, ephemeral; auto: volumes if there is a default class"),
    "--minutes": (SCENARIO_MINUTES, "that all steps may take together, on a machine that is busy"),
    "--scope": ("Cluster", "what the operator watches: Cluster or Namespaces"),
}


class Settings(NamedTuple):
    """Settings of a run.

    Attributes:
        kubeconfig: file that names the cluster.
        builder: of images, with options of its own.
        build_args: NAME=VALUE each.
        build_options: passed to the builder.
        load: command with `{archive}` in the place of a file, "" for none.
        broker_image: "" for one that is built.
        operator_image: likewise.
        programs: folder with helm3, helm4 and kubectl.
        helm: which of them.
        storage: auto, volumes or ephemeral.
        scope: of the operator.
        minutes: that all steps may take together.
        keep: nothing is removed at the end.
    """

    kubeconfig: str
    builder: str
    build_args: tuple[str, ...]
    build_options: tuple[str, ...]
    load: str
    broker_image: str
    operator_image: str
    programs: Path
    helm: str
    storage: str
    scope: str
    minutes: float
    keep: bool

    def program(self, name: str) -> str:
        """Return the path of a program."""
        return str(self.programs / name)

    def load_command(self, archive: Path) -> list[str]:
        """Return the command by which the cluster gets an image."""
        return [part.replace("{archive}", str(archive)) for part in shlex.split(self.load)]


def add_options(parser: pytest.Parser) -> None:
    """Add the options, which exist when pytest is given this folder."""
    group = parser.getgroup("e2e-kubernetes")
    for name, (default, text) in OPTIONS.items():
        action = "append" if isinstance(default, list) else "store"
        group.addoption(name, action=action, default=default, help=text)
    group.addoption("--keep", action="store_true", help="remove nothing at the end")


def has_cluster() -> bool:
    """Return whether a cluster is named."""
    return bool(os.environ.get("KUBECONFIG"))


def read_settings(config: pytest.Config) -> Settings:
    """Return the settings; skip without a cluster, or without a way to give it images."""
    if not has_cluster():
        pytest.skip(NEEDED)
    given = {
        name: config.getoption(name, default=default) for name, (default, _) in OPTIONS.items()
    }
    images = (given["--broker-image"], given["--operator-image"])
    if not all(images) and "{archive}" not in given["--load"]:
        raise pytest.UsageError(
            "--load with {archive}, or both images: how does the cluster get them?"
        )
    return Settings(
        kubeconfig=os.environ["KUBECONFIG"],
        builder=given["--builder"],
        build_args=tuple(given["--build-arg"]),
        build_options=tuple(given["--build-option"]),
        load=given["--load"],
        broker_image=images[0],
        operator_image=images[1],
        programs=(ROOT / given["--programs"]).resolve(),
        helm=given["--helm"],
        storage=given["--storage"],
        scope=given["--scope"],
        minutes=float(given["--minutes"]),
        keep=config.getoption("--keep", default=False),
    )
