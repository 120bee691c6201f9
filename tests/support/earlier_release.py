"""The release before this one, out of the repository's history."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

COMMIT: Final = "a9f6690f1e6be6af6df2dc70bb2313566235e282"
"""The last that could be deployed, and knew nothing of the traces that are kept with tasks now."""
_PACKAGES: Final = ("serve_app", "deployments", "clients/python", "configs")


class NotInHistory(Exception):
    """Here is no clone of the repository, or one without that commit."""


def unpack(repository: Path, folder: Path) -> Path:
    """What the service needs of it, in that empty folder. Raises NotInHistory, saying what helps."""
    command = ["git", "-C", str(repository), "archive", "--format=tar", COMMIT, *_PACKAGES]
    try:
        archived = subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise NotInHistory(
            f"commit {COMMIT[:7]} is not in this clone: git fetch --unshallow brings the whole history"
        ) from None
    with tarfile.open(fileobj=BytesIO(archived.stdout)) as archive:
        archive.extractall(folder, filter="data")
    # Once, instead of in each process where the environment has Python keep nothing.
    subprocess.run([sys.executable, "-m", "compileall", "-q", *_PACKAGES[:3]], cwd=folder, check=True)
    return folder
