"""An environment for the peers that this project doesn't need itself, at the versions that their lock file pins.

It is kept in `.peers`, in a folder for each lock file, and installed once. It sees the packages of the environment that
runs this, so that torch, diffusers and Ray are there and the same.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import sysconfig
from pathlib import Path

_LOCK = Path(__file__).with_name("requirements.txt")


def python(folder: Path) -> Path:
    """The interpreter that has what the lock file pins, below `folder`. Raises CalledProcessError."""
    venv = folder / hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:16]
    others = next(venv.glob("lib/*/site-packages"), venv) / "others.pth"
    if not others.exists():  # written last
        uv = str(Path(sys.executable).with_name("uv"))
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, venv], check=True)
        into = ["--quiet", "--python", venv / "bin/python", "--require-hashes", "-r", _LOCK]
        subprocess.run([uv, "pip", "install", *into], check=True)
        others = next(venv.glob("lib/*/site-packages")) / "others.pth"
        # LitServe takes up an `mcp` that it finds, and fails on releases as new as the service's: it is to find none.
        others.write_text(f"{sysconfig.get_paths()['purelib']}\nimport sys; sys.modules['mcp'] = None\n")
    return venv / "bin/python"
