"""Renders kustomizations with the fields that the project uses; any other field raises.

Names of config maps have no hash at their end.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import yaml

Document: TypeAlias = dict[str, Any]


def render(folder: Path, below: list[Document] | None = None) -> list[Document]:
    """Returns the documents of a kustomization; for a component, the documents `below` it with its changes."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    documents = list(below or [])
    for name in kustomization.pop("resources", []):
        path = folder / name
        documents += render(path) if path.is_dir() else [each for each in yaml.safe_load_all(path.read_text()) if each]
    for name in kustomization.pop("components", []):
        documents = render(folder / name, documents)
    for generated in kustomization.pop("configMapGenerator", []):
        _generate(folder, generated, documents)
    for patch in kustomization.pop("patches", []):
        _patch(documents, patch["target"], yaml.safe_load(patch["patch"]))
    for image in kustomization.pop("images", []):
        for container in _containers(documents):
            if _strip_tag(container["image"]) == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
    if namespace := kustomization.pop("namespace", None):
        for document in documents:
            if document["kind"] != "Namespace":
                document["metadata"]["namespace"] = namespace
    unknown = kustomization.keys() - {"apiVersion", "kind", "configurations"}
    assert not unknown, f"{folder}: {unknown}"
    return documents


def _generate(folder: Path, generated: Document, documents: list[Document]) -> None:
    data = {Path(name).name: (folder / name).read_text() for name in generated.get("files", [])}
    data |= dict(literal.split("=", 1) for literal in generated.get("literals", []))
    behavior = generated.get("behavior", "create")
    existing = [
        each for each in documents if (each["kind"], each["metadata"]["name"]) == ("ConfigMap", generated["name"])
    ]
    assert bool(existing) == (behavior != "create"), f"{generated['name']}: {behavior}"
    if existing:
        existing[0]["data"] = data if behavior == "replace" else existing[0]["data"] | data
    else:
        documents.append(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generated["name"]}, "data": data}
        )


def _patch(documents: list[Document], target: Document, operations: list[Document]) -> None:
    (document,) = (
        each for each in documents if (each["kind"], each["metadata"]["name"]) == (target["kind"], target["name"])
    )
    for operation in operations:
        *parents, last = operation["path"].strip("/").split("/")
        place: Any = document
        for step in parents:
            place = place[int(step) if isinstance(place, list) else step]
        key: Any = last if not isinstance(place, list) else len(place) if last == "-" else int(last)
        value = copy.deepcopy(operation.get("value"))
        match operation["op"]:
            case "remove":
                del place[key]
            case "replace":
                assert place[key] is not None
                place[key] = value
            case "add":
                place.insert(key, value) if isinstance(place, list) else place.update({key: value})


def _strip_tag(image: str) -> str:
    name, _, tag = image.rpartition(":")
    return name if name and "/" not in tag else image


def _containers(node: Any) -> Iterator[Document]:
    """Yields the containers at any depth of a document."""
    if isinstance(node, list):
        for each in node:
            yield from _containers(each)
    elif isinstance(node, dict):
        for name, value in node.items():
            if name in ("containers", "initContainers"):
                yield from value
            else:
                yield from _containers(value)


def containers(documents: list[Document]) -> list[Document]:
    return list(_containers(documents))
