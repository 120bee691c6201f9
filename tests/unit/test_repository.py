"""Locked dependencies, versions, links of documents, names inside Ray, and files of packages."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from gen_serve_client.version import VERSION
from ray._private import node
from ray.serve._private.request_router import replica_wrapper
from ray.serve._private.request_router.replica_wrapper import gRPCReplicaWrapper

from serve_app import ray_internals
from serve_app.api.pages.guide import anchor
from serve_app.ray_internals import OwnNode, start_own_node


def read_pins(text: str) -> dict[str, str]:
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins}


def read_project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


@pytest.fixture
def dependencies(repository: Path) -> set[str]:
    """Returns the names of required packages, without the client, which is part of the repository."""
    names = {re.split(r"[\[><=]", each)[0].lower() for each in read_project(repository)["dependencies"]}
    return names - {"gen-serve-client"}


def test_lock_has_every_dependency_in_its_tested_version(repository: Path, dependencies: set[str]) -> None:
    tested = read_pins((repository / "constraints.txt").read_text())
    locked = read_pins((repository / "requirements.lock").read_text())
    assert dependencies <= locked.keys()
    assert {name: version for name, version in locked.items() if tested.get(name, version) != version} == {}


def test_everything_in_the_lock_has_hashes(repository: Path) -> None:
    entries = re.split(r"\n(?=\S)", (repository / "requirements.lock").read_text().strip())
    assert [each.split()[0] for each in entries if "--hash=sha256:" not in each] == []


def test_notice_names_the_licence_of_every_dependency(repository: Path, dependencies: set[str]) -> None:
    assert set(re.findall(r"^([a-z0-9-]+): \S", (repository / "NOTICE").read_text(), re.MULTILINE)) == dependencies


def test_every_python_from_3_11_on_is_supported(repository: Path) -> None:
    for folder in ("", "clients/python", "benchmarks/load"):
        project = read_project(repository / folder)
        assert project["requires-python"] == ">=3.11"
        versions = [each.rpartition(" ")[2] for each in project["classifiers"]]
        assert versions == ["3", "3.11", "3.12", "3.13", "3.14"]
    for file in ("Dockerfile", "deploy/docker/haproxy", "Makefile"):
        assert "lib/python3.1" not in (repository / file).read_text()


def test_release_has_one_version(repository: Path) -> None:
    project, load = (read_project(repository / folder) for folder in ("", "benchmarks/load"))
    manifests = "".join(file.read_text() for file in (repository / "deploy/kubernetes").rglob("*.yaml"))
    tags = re.findall(r"\b(?:cpu|cuda)-(\d+\.\d+\.\d+)\b", manifests)
    released = re.search(r"^## (\d\S*) \(\d{4}-\d\d-\d\d\)$", (repository / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert len(tags) == 3
    assert released is not None
    assert {project["version"], load["version"], VERSION, released[1], *tags} == {project["version"]}
    assert f"gen-serve-client=={VERSION}" in project["dependencies"]


def test_packages_of_the_cuda_image_are_locked(repository: Path) -> None:
    requirements = set((repository / "requirements-gpu.in").read_text().split("\n")) - {""}
    tested = read_pins((repository / "constraints.txt").read_text())
    locked = read_pins((repository / "requirements-gpu.lock").read_text())
    assert {each for each in requirements if not each.startswith("#")} == locked.keys()
    # The package for CUDA has the same releases.
    tested["onnxruntime-gpu"] = tested["onnxruntime"]
    assert {name: version for name, version in locked.items() if tested[name] != version} == {}


_LINK = re.compile(r"\]\((?P<path>[^)#\s]*)(#(?P<anchor>[^)\s]*))?\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", document.read_text()), re.MULTILINE)
    return {anchor(heading) for heading in headings}


def find_broken_links(document: Path) -> Iterator[str]:
    for link in _LINK.finditer(_FENCE.sub("", document.read_text())):
        if "://" in link["path"]:
            continue
        target = document.parent / link["path"] if link["path"] else document
        fragment = link["anchor"] if target.suffix == ".md" else None
        if not target.exists() or (fragment and fragment not in anchors(target)):
            yield f"{document.name}: {link[0]}"


def test_links_of_documents_have_targets(repository: Path) -> None:
    documents = [*repository.glob("*.md"), *(repository / "docs").rglob("*.md"), repository / "examples/README.md"]
    assert len(documents) > 15
    assert [link for document in documents for link in find_broken_links(document)] == []


def test_own_node_is_used_only_inside_the_context() -> None:
    whole = node.Node
    for name in ("start_monitor", "start_log_monitor", "start_api_server"):
        assert name in vars(whole), "Ray starts it by this name"
        assert name in vars(OwnNode)
    with start_own_node():
        assert node.Node is OwnNode
    assert node.Node is whole


def test_calls_of_replicas_send_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_internals, "requires_token", lambda: True)
    replaced = {name: vars(replica_wrapper)[name] for name in ("init_grpc_channel", "ASGIServiceStub")}
    try:
        ray_internals.send_token_as_metadata()
        assert all(vars(replica_wrapper)[name] is not own for name, own in replaced.items())
        names = gRPCReplicaWrapper.send_request_python.__code__.co_names
        channel = MagicMock()
        stub = vars(replica_wrapper)["ASGIServiceStub"](channel)
        assert {name for name in names if name.startswith("Handle")} <= vars(stub).keys()
        stub.HandleRequest(b"")
        assert "metadata" in channel.unary_unary.return_value.call_args.kwargs
    finally:
        replica_wrapper.__dict__.update(replaced)


_SERVE_APP = Path(__file__).parents[2] / "serve_app"
LINKS = {_SERVE_APP / "config/files", _SERVE_APP / "api/pages/documents"}
"""Links to `configs` and `docs`; patterns name their files."""


def test_packages_hold_every_file_they_read(repository: Path) -> None:
    patterns = tomllib.loads((repository / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    packaged = {
        path for package, names in patterns.items() for name in names for path in (repository / package).glob(name)
    }
    listed = subprocess.run(
        ["git", "ls-files", "serve_app", "deployments"], cwd=repository, capture_output=True, text=True
    )
    data = {repository / name for name in listed.stdout.split() if not name.endswith((".py", ".md"))} - LINKS
    assert data <= packaged
    assert {_SERVE_APP / "config/files" / file.name for file in (repository / "configs").glob("*.yaml")} <= packaged
    documents = {
        file.relative_to(repository / "docs") for file in (repository / "docs").rglob("*.*") if file.suffix != ".json"
    }
    assert {_SERVE_APP / "api/pages/documents" / file for file in documents} <= packaged


def test_images_have_the_linked_folders(repository: Path) -> None:
    copied = re.findall(r"^COPY (\S+) \1$", (repository / "Dockerfile").read_text(), re.MULTILINE)
    wanted = (repository / ".dockerignore").read_text().split()
    for link in LINKS:
        folder = link.resolve().name
        assert link.is_symlink()
        assert folder in copied
        assert f"!{folder}" in wanted
