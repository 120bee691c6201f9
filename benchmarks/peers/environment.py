"""An environment for the peers that this project doesn't need itself, at the versions that their lock file pins.

It is kept in `.peers`, in a folder for each lock file, and installed once. It sees the packages of the environment that
runs this, so that torch, diffusers and Ray are there and the same; `.peers` has only what the peers add.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

LOCK = Path(__file__).with_name("requirements.txt")
_HIDDEN = ("mcp",)
"""Packages that must look as if they were not there: LitServe takes up an `mcp` that it finds, and fails on releases as
new as the service's."""
_INSTALL_S = 300


class NotInstalled(RuntimeError):
    """The peers' packages could not be installed; the text says what uv said."""


def python(folder: Path, lock: Path = LOCK) -> Path:
    """The interpreter that has what `lock` pins, below `folder`. Raises NotInstalled."""
    folder.mkdir(exist_ok=True)
    kept = folder / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            filled = Path(temporary) / "env"
            _install(filled, lock)
            if not kept.exists():
                filled.rename(kept)
    return kept / "bin/python"


def _install(folder: Path, lock: Path) -> None:
    uv = str(Path(sys.executable).with_name("uv"))
    _run([uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(folder)])
    into = ["--python", str(folder / "bin/python")]
    _run([uv, "pip", "install", "--quiet", *into, "--require-hashes", "-r", str(lock)])
    places = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    hide = f"import sys; sys.modules.update(dict.fromkeys({_HIDDEN}))"  # lines that begin so are run at start
    (Path(places["purelib"]) / "main.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n{hide}\n")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    if done.returncode:
        raise NotInstalled(done.stderr[-3000:])
