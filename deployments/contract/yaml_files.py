"""YAML files that people write: duplicate keys are errors, and problems are named with their line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

_MERGE: Final = "tag:yaml.org,2002:merge"


def read_yaml(path: Path) -> Any:
    """Returns the content; None for an empty file.

    Raises OSError, or ValueError with file and line for broken YAML and for a duplicate key: YAML readers take the
    last one and drop everything below the first.
    """
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
        for key, first in _repeated_keys(root) if root else ():
            raise ValueError(f"{path}:{_line(key)}: {key.value} stands here and in line {_line(first)}: merge the two")
        return yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise ValueError(f"{path} is not valid YAML: {problem}") from None


def find_line(path: Path, keys: Sequence[str | int]) -> int | None:
    """Returns the line of the last of `keys`, a path of keys and indexes; None if the file does not have it."""
    node, line = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader), None
    for part in keys:
        found = next(((key, value) for key, value in _entries(node) if key.value == str(part)), None) if node else None
        if found is not None:
            line, node = _line(found[0]), found[1]
        elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = _line(node)
        else:
            return None
    return line


def _line(node: Node) -> int:
    return node.start_mark.line + 1


def _entries(node: Node) -> Iterator[tuple[ScalarNode, Node]]:
    """Yields a mapping's own entries, then those that it merges (`<<`)."""
    merged: list[Node] = []
    for key, value in node.value if isinstance(node, MappingNode) else ():
        if key.tag == _MERGE:
            merged += value.value if isinstance(value, SequenceNode) else [value]
        else:
            yield key, value
    for each in merged:
        yield from _entries(each)


def _repeated_keys(root: Node) -> Iterator[tuple[ScalarNode, ScalarNode]]:
    """Yields each key that its mapping already has, and the first one."""
    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, SequenceNode):
            waiting += node.value
        elif isinstance(node, MappingNode):
            keys: dict[tuple[str, str], ScalarNode] = {}
            for key, value in node.value:
                waiting.append(value)
                if isinstance(key, ScalarNode) and (first := keys.setdefault((key.tag, key.value), key)) is not key:
                    yield key, first
