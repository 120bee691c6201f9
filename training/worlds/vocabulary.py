"""What there is in the little worlds and what people call it: `vocabulary.yaml` is the one list of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

_LISTED: Final[Mapping[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())

COLOURS: Final[Mapping[str, tuple[float, float, float]]] = {
    name: tuple(listed["rgb"]) for name, listed in _LISTED["colours"].items()
}
"""Red, green and blue in [0, 1]."""
SHAPES: Final[tuple[str, ...]] = tuple(_LISTED["shapes"])
SIZES: Final[Mapping[str, float]] = {name: listed["half_side"] for name, listed in _LISTED["sizes"].items()}
"""Half sides, in tokens."""
PLACES: Final[Mapping[str, tuple[int, int]]] = {
    name: tuple(listed["side"]) for name, listed in _LISTED["places"].items()
}
"""Which side of the canvas, along x and y."""

WORDS: Final[Mapping[str, Sequence[str]]] = {
    name: listed["words"] for kind in ("sizes", "places") for name, listed in _LISTED[kind].items()
}
"""Of sizes and places."""
SYNONYMS: Final[Mapping[str, Sequence[str]]] = {
    name: listed["synonyms"]
    for kind in ("colours", "shapes")
    for name, listed in _LISTED[kind].items()
    if "synonyms" in listed
}
"""Of colours and shapes: what is said instead of their names."""

PROMPTS: Final[Mapping[str, Any]] = _LISTED["prompts"]
"""How people's prompts are put in these words."""
UNDERSTOOD: Final[Mapping[str, Sequence[str]]] = {
    name: [*listed.get("synonyms", ()), *listed.get("also", ())]
    for kind in ("colours", "shapes")
    for name, listed in _LISTED[kind].items()
} | PROMPTS["said_for"]
"""Words and phrases of people, by the one that is known for them."""

CLIPS: Final[Mapping[str, Any]] = _LISTED["clips"]
"""The same of the moving world."""
