"""What is installed by hash is what was tested."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray._private import node

from serve_app.ray_internals import OwnNode, begun_as_own


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


_LINK = re.compile(r"\]\((?P<path>[^)#\s]*)(#(?P<anchor>[^)\s]*))?\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(document: Path) -> set[str]:
    """As GitHub makes them of headings: lower case, spaces to hyphens, no other signs."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(document: Path) -> Iterator[str]:
    for link in _LINK.finditer(_FENCE.sub("", document.read_text())):
        if "://" in link["path"]:
            continue
        target = document.parent / link["path"] if link["path"] else document
        anchor = link["anchor"] if target.suffix == ".md" else None
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield f"{document.name}: {link[0]}"


def test_every_link_leads_somewhere(repository: Path) -> None:
    documents = [*repository.glob("*.md"), *(repository / "docs").rglob("*.md")]
    assert len(documents) > 15
    assert [link for document in documents for link in broken(document)] == []


LEFT_OUT = ("start_monitor", "start_log_monitor", "start_api_server")


@pytest.mark.parametrize("name", LEFT_OUT)
def test_ray_starts_it_by_this_name(name: str) -> None:
    assert name in vars(node.Node)
    assert name in vars(OwnNode)


def test_nodes_are_rays_own_again_afterwards() -> None:
    whole = node.Node
    with begun_as_own():
        assert node.Node is OwnNode
    assert node.Node is whole
