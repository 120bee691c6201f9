"""Writing a bundled checkpoint's folder, and the command line of the modules that build one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

CHECKPOINTS = Path(__file__).parents[2] / "deployments" / "bundled" / "checkpoints"


def write(folder: Path, save: Callable[[str], object]) -> None:
    """Writes a checkpoint into `folder`, replacing what is there; `save` gets its path."""
    if folder.exists():
        shutil.rmtree(folder)
    save(str(folder))
    _make_readable(folder)


def replace_weights(component: Path, save: Callable[[str], object]) -> None:
    """Saves a component of a checkpoint over the one that is there, which keeps what `save` doesn't write."""
    save(str(component))
    _make_readable(component)


def _make_readable(folder: Path) -> None:
    for file in folder.rglob("*.safetensors"):
        file.chmod(0o644)  # written for their owner alone; a replica may run as another user


def main(build: Callable[[Path], None], default: Path) -> None:
    """Builds into the folder named on the command line, or `default`, and prints its size."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    build(target)
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    print(f"{target}: {size / 2**20:.1f} MiB")
