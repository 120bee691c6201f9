"""Virtual environment for peers whose packages this project lacks, at the versions of their lock file.

`.peers` has an environment for each lock file, installed once. It includes the packages of the running environment, so
that torch, diffusers and Ray are the same.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import sysconfig
from pathlib import Path

_LOCK = Path(__file__).with_name("requirements.txt")


def python(folder: Path) -> Path:
    """Returns the environment's interpreter, installed below `folder` if need be. Raises CalledProcessError."""
    venv = folder / hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:16]
    others = next(venv.glob("lib/*/site-packages"), venv) / "others.pth"
    if not others.exists():  # it is written last
        uv = str(Path(sys.executable).with_name("uv"))
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, venv], check=True)
        into = ["--quiet", "--python", venv / "bin/python", "--require-hashes", "-r", _LOCK]
        subprocess.run([uv, "pip", "install", *into], check=True)
        others = next(venv.glob("lib/*/site-packages")) / "others.pth"
        # LitServe uses an installed `mcp` and fails on the service's newer release, so this one hides it.
        others.write_text(f"{sysconfig.get_paths()['purelib']}\nimport sys; sys.modules['mcp'] = None\n")
    return venv / "bin/python"
