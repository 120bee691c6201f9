"""What is installed by hash is what was tested."""

from __future__ import annotations

import re
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
