"""ComfyUI workflows in API format: nodes by id, their inputs, and the types that a server declares for them.

A place is `node.input`: a node's id or title (`_meta.title`), then the name of one of its inputs.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from deployments.contract.request import Scalar

FileType: TypeAlias = Literal["image", "mask", "video"]
PREFIX: Final = "filename_prefix"
"""Input of every node that writes files."""
_FILE_INPUTS: Final[Mapping[tuple[str, str], FileType]] = {
    ("LoadImage", "image"): "image",
    ("LoadImageMask", "image"): "mask",
    ("LoadVideo", "file"): "video",
}
"""Types of the files that nodes load, by class and input."""


class WorkflowError(ValueError):
    """A workflow that can't be used, or a place that it does not have. The message is for an operator."""


@dataclass(frozen=True, slots=True)
class Place:
    node: str
    """Id of the node."""
    input: str

    def __str__(self) -> str:
        return f"{self.node}.{self.input}"


@dataclass(frozen=True, slots=True)
class InputType:
    """Values that a node's input accepts."""

    type: type[int] | type[float] | type[str] | type[bool]
    minimum: float | None = None
    maximum: float | None = None
    options: tuple[Scalar, ...] = ()
    """Accepted values; empty: any of the type."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """A server's answer to `/object_info`: its node classes and their inputs."""

    classes: Mapping[str, Any]

    def input_type(self, class_type: str, name: str) -> InputType | None:
        """Returns None if the class has no such input, or if only links of other nodes can fill it."""
        inputs = self.classes.get(class_type, {}).get("input", {})
        declared = next(
            (inputs[group][name] for group in ("required", "optional") if name in inputs.get(group, {})), None
        )
        if not declared:
            return None
        declared_type, options = declared[0], declared[1] if len(declared) > 1 else {}
        match declared_type:
            case list():
                return InputType(str, options=tuple(declared_type))
            case "COMBO":
                return InputType(str, options=tuple(options.get("options", ())))
            case "INT":
                return InputType(int, options.get("min"), options.get("max"))
            case "FLOAT":
                return InputType(float, options.get("min"), options.get("max"))
            case "BOOLEAN":
                return InputType(bool)
            case "STRING":
                return InputType(str)
        return None


class Workflow:
    """A workflow in API format. `graph` maps ids of nodes to their class and inputs."""

    def __init__(self, graph: dict[str, Any]) -> None:
        self.graph = graph

    @classmethod
    def load(cls, file: Path) -> Workflow:
        """Raises WorkflowError for a file that is no workflow in API format."""
        try:
            graph = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise WorkflowError(f"{file} can't be read: {error}") from None
        if isinstance(graph, dict) and "nodes" in graph and "links" in graph:
            raise WorkflowError(f"{file} is in the format of ComfyUI's editor: save it with Workflow > Export (API)")
        if not isinstance(graph, dict) or not graph or not all(_is_node(node) for node in graph.values()):
            raise WorkflowError(f"{file} is no workflow in API format: save it in ComfyUI with Workflow > Export (API)")
        return cls(graph)

    def find_node(self, name: str) -> str:
        """Returns the id of the node with this id or title. Raises WorkflowError."""
        if name in self.graph:
            return name
        found = [node for node, each in self.graph.items() if each.get("_meta", {}).get("title") == name]
        if len(found) > 1:
            raise WorkflowError(f"{len(found)} nodes have the title {name!r}: name one by its id, {' or '.join(found)}")
        if not found:
            raise WorkflowError(f"there is no node {name!r}")
        return found[0]

    def find_place(self, text: str) -> Place:
        """Returns the place of `node.input`. Raises WorkflowError also for an input that another node fills."""
        node, _, name = text.rpartition(".")
        place = Place(self.find_node(node), name)
        inputs = self.graph[place.node]["inputs"]
        if name not in inputs:
            raise WorkflowError(f"node {node!r} has no input {name!r}; its inputs are {', '.join(sorted(inputs))}")
        if isinstance(inputs[name], list):
            raise WorkflowError(f"{text} is linked to node {inputs[name][0]!r}: name an input of that node")
        return place

    def value(self, place: Place) -> Scalar:
        """Returns the value in the file."""
        return self.graph[place.node]["inputs"][place.input]

    def class_of(self, node: str) -> str:
        return self.graph[node]["class_type"]

    def file_type(self, place: Place) -> FileType | None:
        """Returns the type of the files that the input names; None for other inputs."""
        return _FILE_INPUTS.get((self.class_of(place.node), place.input))

    def nodes(self, *classes: str) -> Iterator[str]:
        """Yields the ids of all nodes of these classes."""
        return (node for node, each in self.graph.items() if each["class_type"] in classes)

    def problems(self, info: ObjectInfo) -> list[str]:
        """Returns what a server lacks to run this: node classes, and files that the workflow names."""
        used = {self.class_of(node) for node in self.graph}
        problems = [f"the server has no node class {each}" for each in sorted(used - info.classes.keys())]
        for node, each in self.graph.items():
            for name, value in each["inputs"].items():
                # ComfyUI's convention for model files: ckpt_name, vae_name, lora_name and so on.
                declared = info.input_type(each["class_type"], name) if name.endswith("_name") else None
                if declared and declared.options and isinstance(value, str) and value not in declared.options:
                    problems.append(f"node {node}: the server has no {name} {value!r}")
        return problems

    def fill(self, values: Mapping[Place, Scalar], prefix: str) -> dict[str, Any]:
        """Returns the graph with these values. Files are written below `prefix`.

        A node whose inputs are as in an earlier run writes nothing: a prefix of their own makes all output nodes run.
        """
        graph: dict[str, Any] = copy.deepcopy(self.graph)
        for place, value in values.items():
            graph[place.node]["inputs"][place.input] = value
        for node in graph.values():
            if PREFIX in node["inputs"]:
                node["inputs"][PREFIX] = prefix
        return graph


def _is_node(node: Any) -> bool:
    return isinstance(node, dict) and isinstance(node.get("class_type"), str) and isinstance(node.get("inputs"), dict)
