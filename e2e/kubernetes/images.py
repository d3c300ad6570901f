"""The images: built, put into an archive, and given to the cluster, all without a registry."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from e2e.kubernetes.command import run
from e2e.kubernetes.settings import ROOT, Settings

BUILD_SECONDS: Final = 1800.0  # the broker's hot path is compiled
LOAD_SECONDS: Final = 300.0
# Not `latest`, of which Kubernetes asks a registry.
BROKER: Final = "docker.io/headrace/broker:e2e"
OPERATOR: Final = "docker.io/headrace/operator:e2e"


class Image(NamedTuple):
    """An image's name in its parts.

    Attributes:
        repository: with the registry, if there is one.
        tag: "" for an image that is named by its digest.
        digest: "" for an image that is named by its tag.
    """

    repository: str
    tag: str
    digest: str

    @property
    def values(self) -> dict[str, str]:
        """Return the values for the chart."""
        return self._asdict()

    @property
    def name(self) -> str:
        """All of it."""
        return (
            f"{self.repository}@{self.digest}" if self.digest else f"{self.repository}:{self.tag}"
        )


def parse(name: str) -> Image:
    """Return the parts of an image's name."""
    rest, _, digest = name.partition("@")
    before, colon, tag = rest.rpartition(":")
    if colon and "/" not in tag:
        return Image(before, "" if digest else tag, digest)
    return Image(rest, "" if digest else "latest", digest)


def provide(settings: Settings) -> tuple[Image, Image]:
    """Return the broker's and the operator's image, having built those that were not named.

    Raises:
        CommandError: building or loading failed.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-images-") as directory:
        return (
            _provided(settings, "broker", settings.broker_image, BROKER, Path(directory)),
            _provided(settings, "operator", settings.operator_image, OPERATOR, Path(directory)),
        )


def _provided(settings: Settings, part: str, given: str, own: str, directory: Path) -> Image:
    if given:
        return parse(given)
    archive = directory / f"{part}.tar"
    for command in build_commands(settings, part, own, archive):
        print(f"  {' '.join(command)}", flush=True)
        run(command, seconds=BUILD_SECONDS)
    command = settings.load_command(archive)
    print(f"  {' '.join(command)}", flush=True)
    run(command, seconds=LOAD_SECONDS)
    archive.unlink()
    return parse(own)


def build_commands(settings: Settings, part: str, image: str, archive: Path) -> list[list[str]]:
    """Return the commands that build an image and write it into an archive."""
    builder = shlex.split(settings.builder)
    arguments = [text for each in settings.build_args for text in ("--build-arg", each)]
    file = str(ROOT / part / "Dockerfile")
    build = [*builder, "build", *settings.build_options, *arguments, "-f", file, "-t", image]
    if Path(builder[0]).name == "buildah":
        save = [*builder, "push", image, f"docker-archive:{archive}:{image}"]
    else:
        save = [*builder, "save", "-o", str(archive), image]
    return [[*build, str(ROOT)], save]
