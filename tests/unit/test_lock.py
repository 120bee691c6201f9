"""What is installed by hash is what was tested."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path


def pinned(text: str) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def test_the_lock_has_the_versions_of_the_constraints(repository: Path) -> None:
    tested = pinned((repository / "constraints.txt").read_text())
    locked = pinned((repository / "requirements.lock").read_text())
    assert {"ray", "torch", "fastapi", "pillow", "cryptography"} <= locked.keys()
    assert {name: version for name, version in locked.items() if tested.get(name, version) != version} == {}


def test_everything_in_the_lock_has_hashes(repository: Path) -> None:
    entries = re.split(r"\n(?=\S)", (repository / "requirements.lock").read_text().strip())
    assert [each.split()[0] for each in entries if "--hash=sha256:" not in each] == []


def test_every_dependency_is_in_the_lock(repository: Path) -> None:
    """What is installed from it alone has to start."""
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[\[><=]", each)[0].lower() for each in project["dependencies"]}
    assert names - pinned((repository / "requirements.lock").read_text()).keys() == {"gen-serve-client"}


def test_what_the_cuda_image_has_beside_it_is_locked_too(repository: Path) -> None:
    wanted = set((repository / "requirements-gpu.in").read_text().split("\n")) - {""}
    tested = pinned((repository / "constraints.txt").read_text())
    locked = pinned((repository / "requirements-gpu.lock").read_text())
    assert {each for each in wanted if not each.startswith("#")} == locked.keys()
    # The one for CUDA is the same release.
    tested["onnxruntime-gpu"] = tested["onnxruntime"]
    assert {name: version for name, version in locked.items() if tested[name] != version} == {}
