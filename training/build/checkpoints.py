"""Builds what `checkpoints.yaml` lists, in the layout of published checkpoints.

Weights come from fixed seeds, so building twice gives the same bytes. Until they are trained (`training.trainer`),
pictures show coloured noise. Autoencoders and vocoder are written down, and the rewriter is trained where it is built.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import diffusers
import diffusers.pipelines.flux
import diffusers.pipelines.ltx2
import torch
import transformers
import yaml
from diffusers.modular_pipelines.modular_pipeline import ModularPipelineBlocks
from torch import nn

from training.build.bundle import BUNDLE, CHECKPOINTS, write
from training.build.first_weights import FIRST_WEIGHTS
from training.build.words import WORDS
from training.rewriter import model as rewriter

_TABLE: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
_LIBRARIES: Final = (diffusers, diffusers.pipelines.flux, diffusers.pipelines.ltx2, transformers)

AUTOENCODERS: Final = tuple(_TABLE["autoencoders"])
"""What checkpoints of pictures share, in a folder of its own each."""
NAMES: Final = (*_TABLE["checkpoints"], "autoencoders", "rewriter")


def configuration(checkpoint: str, name: str) -> dict[str, Any]:
    """Of a component: what differs from the defaults of its class."""
    [values] = _spec(checkpoint, name).values()
    return values


def component(checkpoint: str, name: str, **changes: Any) -> Any:
    """A new component: a network with its first weights, a scheduler, or a tokenizer as it is stored.

    Draws from torch's random numbers. `name` is that of its folder; `changes` replace values of the configuration.
    """
    return _made(_spec(checkpoint, name), CHECKPOINTS / checkpoint / name, **changes)


def autoencoder(name: str) -> Any:
    """A new one of AUTOENCODERS."""
    return _made(_TABLE["autoencoders"][name]["network"])


def build(name: str, bundle: Path = BUNDLE) -> list[Path]:
    """Writes what has this name in NAMES into `bundle`, replacing what is there, and returns its folders.

    Leaves torch's random numbers alone.
    """
    folder = bundle / "checkpoints" / name
    with torch.random.fork_rng(devices=[]):
        if name == "autoencoders":
            return [_build_autoencoder(name, bundle / "autoencoders" / name) for name in AUTOENCODERS]
        if name == "rewriter":
            return [rewriter.build(folder)]
        return [_build_checkpoint(name, folder)]


def _build_autoencoder(name: str, folder: Path) -> Path:
    torch.manual_seed(_TABLE["autoencoders"][name]["seed"])
    write(folder, autoencoder(name).save_pretrained)
    return folder


def _build_checkpoint(name: str, folder: Path) -> Path:
    recipe = _TABLE["checkpoints"][name]
    torch.manual_seed(recipe["seed"])
    _write_pipeline(recipe, CHECKPOINTS / name, folder)
    for part, its_recipe in recipe.get("parts", {}).items():
        _write_pipeline(its_recipe, CHECKPOINTS / name / part, folder / part)
    if "autoencoder" in recipe:
        _share_autoencoder(folder, recipe["autoencoder"])
        WORDS.write(folder)  # all of pictures learn the same world
    return folder


def _write_pipeline(recipe: Mapping[str, Any], stored: Path, folder: Path) -> None:
    components = {name: _made(spec, stored / name) for name, spec in recipe["components"].items()}
    for name, made in components.items():
        # Half precision keeps files small, but a shared autoencoder is exact arithmetic on large constants.
        if isinstance(made, nn.Module) and not (name == "vae" and "autoencoder" in recipe):
            made.half()
    kind = _class(recipe["pipeline"])
    if issubclass(kind, ModularPipelineBlocks):
        blocks = kind()
        blocks.sub_blocks.pop(recipe["without"])
        pipeline = blocks.init_pipeline()
        pipeline.update_components(**components)
        write(folder, partial(pipeline.save_pretrained, overwrite_modular_index=True))
    else:
        write(folder, kind(**components, **recipe.get("settings", {})).save_pretrained)


def _share_autoencoder(folder: Path, name: str) -> None:
    """Says in the checkpoint's index that its autoencoder lies elsewhere, and no place for all other components."""
    shutil.rmtree(folder / "vae")
    [index] = folder.glob("*model_index.json")
    entries = json.loads(index.read_text())
    entries["_shared"] = {"vae": f"../../autoencoders/{name}"}
    for entry in entries.values():
        if isinstance(entry, list) and isinstance(entry[-1], dict):
            entry[-1]["pretrained_model_name_or_path"] = None  # noted by the pipeline; without, it is beside the index
    index.write_text(json.dumps(entries, indent=2, sort_keys=True) + "\n")


def _spec(checkpoint: str, name: str) -> Any:
    *parts, last = name.split("/")
    recipe = _TABLE["checkpoints"][checkpoint]
    for part in parts:
        recipe = recipe["parts"][part]
    return recipe["components"][last]


def _made(spec: str | Mapping[str, Any], stored: Path | None = None, **changes: Any) -> Any:
    """From its class and its configuration; from its class alone, what is stored."""
    if isinstance(spec, str):
        return _class(spec).from_pretrained(stored)
    [(name, values)] = spec.items()
    kind, values = _class(name), {**values, **changes}
    made = kind(kind.config_class(**values)) if getattr(kind, "config_class", None) else kind(**values)
    if name in FIRST_WEIGHTS:
        with torch.no_grad():
            FIRST_WEIGHTS[name](made)
    return made


def _class(name: str) -> Any:
    """Of a library that stored checkpoints name, too."""
    return next(getattr(library, name) for library in _LIBRARIES if hasattr(library, name))
