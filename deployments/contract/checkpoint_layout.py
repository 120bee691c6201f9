"""Layout of a pipeline's checkpoint: which files of a folder or repository are loaded, and which are missing.

Repositories hold the same weights several times: in full and half precision (`variant` in diffusers), in old formats,
and for other frameworks. `weights fetch`, the check and replicas all select here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SAFETENSORS: Final = ".safetensors"
INDEXES: Final = ("modular_model_index.json", "model_index.json")
NATIVE_FOLDERS: Final = ("redux", "latent_upsampler")
"""Folders that native families load although no index names them."""
_VARIANTS: Final[Mapping[str, str]] = {"float16": "fp16", "bfloat16": "bf16"}
_STEM: Final = r"(?:diffusion_pytorch_model|pytorch_model|model)"
_VARIANT: Final = r"(?:\.(?!index)(?P<{}>\w+))?"
_WEIGHTS: Final = re.compile(
    _STEM
    + _VARIANT.format("variant")
    + r"(?:-(?P<shard>\d+)-of-(?P<shards>\d+))?"
    + _VARIANT.format("old_variant")
    # The index of shards has the variant after the format.
    + r"\.(?P<format>safetensors|bin)(?:"
    + _VARIANT.format("old_index")
    + r"\.index(?:\.(?P<index>\w+))?\.json)?"
)
_LOOSE: Final = (".safetensors", ".bin", ".pt", ".pth")
_OTHER_FRAMEWORKS: Final = (
    *(".msgpack", ".h5", ".ot", ".onnx", ".onnx_data", ".pb", ".tflite", ".gguf", ".ckpt"),
    *("openvino_model.bin", "openvino_model.xml"),
)
"""Suffixes of file names."""
_MAX_HEADER: Final = 100_000_000
"""Bytes of a safetensors header at most."""
_WITHOUT_WEIGHTS: Final = re.compile(r"Tokenizer|Processor|Extractor|Scheduler")
"""Names of classes without weights."""


@dataclass(frozen=True, slots=True)
class WeightsChoice:
    """Selection of a pipeline's weights among those in its checkpoint."""

    precision: str = "auto"
    """`dtype` of the model: the variant in that precision is smaller than full weights, and gives the same results."""
    replaced: tuple[str, ...] = ()
    """Components whose weights come from another file."""


ANY_WEIGHTS: Final = WeightsChoice()
TEXT_ENCODERS: Final = WeightsChoice(replaced=("transformer", "vae"))
"""Weights of a shared text encoder, which runs apart from the rest of the pipeline."""


@dataclass(frozen=True, slots=True)
class _Weights:
    name: str
    variant: str
    """Empty for plain weights."""
    format: str
    shards: int
    """Number of files; 0 for a single file or an index of shards."""


def read_components(index: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Returns library and class of each component in the index of a pipeline."""
    return {
        name: (value[0], value[1])
        for name, value in index.items()
        if isinstance(value, list) and len(value) == 2 and all(isinstance(each, str) for each in value)
    }


def find_variant(names: Collection[str], index: Mapping[str, Any] | None, choice: WeightsChoice) -> str | None:
    """Returns the `variant` to load a pipeline with; None for its plain weights.

    Prefers the variant of the precision, then plain weights, then one that all components without plain weights have.
    """
    found = [{each.variant for each in weights} for weights in _weights_by_folder(names, index, choice).values()]
    preferred = "" if _is_modular(index) else _VARIANTS.get(choice.precision, "")
    others = sorted(set[str]().union(*found) - {"", "bf16", "fp16"})
    candidates = [preferred] if any(preferred in each for each in found) else []
    for variant in (*candidates, "", "fp16", "bf16", *others):
        if all(variant in each or "" in each for each in found):
            return variant or None
    return None


def choose_files(names: Collection[str], index: Mapping[str, Any] | None, choice: WeightsChoice) -> list[str]:
    """Returns the files of a pipeline that are loaded; without an index, those of all folders."""
    weights, variant = _weights_by_folder(names, index, choice), find_variant(names, index, choice) or ""
    selected: list[str] = []
    for name in names:
        folder, _, file = name.rpartition("/")
        top = folder.partition("/")[0]
        if not folder:
            selected += [name] if name.endswith(".json") else []
        elif not _is_loaded(top, index) or name.endswith(_OTHER_FRAMEWORKS):
            continue
        elif _WEIGHTS.fullmatch(file) or name.endswith(_LOOSE):
            here = weights.get(folder, [])
            kept = variant if any(each.variant == variant for each in here) else ""
            is_strange = folder == top and not here and top not in choice.replaced
            selected += [name] if is_strange or any(each.name == name and each.variant == kept for each in here) else []
        else:
            selected.append(name)
    return selected


def loaded_files(folder: Path, choice: WeightsChoice) -> list[Path]:
    """Returns the files of a local checkpoint that are loaded."""
    return [folder / name for name in choose_files(list_files(folder), load_index(folder), choice)]


def list_files(folder: Path) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]


def load_index(folder: Path) -> dict[str, Any] | None:
    """Returns the index of a pipeline; None without a readable one."""
    file = next((folder / name for name in INDEXES if (folder / name).is_file()), None)
    try:
        index = None if file is None else json.loads(file.read_bytes())
    except ValueError:
        return None
    return index if isinstance(index, dict) else None


def find_problem(path: Path, choice: WeightsChoice) -> str | None:
    """Returns why the pipeline in a folder or file can't be loaded; None if it can."""
    if path.is_file():
        return file_problem(path) or f"{path.name} is one file"
    index = load_index(path)
    if index is None:
        return f"it has no readable {INDEXES[1]}"
    if not isinstance(index.get("_class_name"), str):
        return "its index names no pipeline class"
    names = list_files(path)
    weights = _weights_by_folder(names, index, choice)
    for name, (_, class_name) in read_components(index).items():
        if name in index.get("_shared", {}) or name in choice.replaced:
            continue
        if not any(each.startswith(f"{name}/") for each in names):
            return f"the folder of its {name} is missing"
        if _WITHOUT_WEIGHTS.search(class_name) or f"{name}/config.json" not in names:
            continue
        if name not in weights and not any(each.startswith(f"{name}/") and each.endswith(_LOOSE) for each in names):
            return f"{name} has no weights"
    selected = choose_files(names, index, choice)
    for folder, files in weights.items():
        kept = [each for each in files if each.name in selected]
        if not kept:
            return f"{folder} has weights in {', '.join(sorted({each.variant for each in files}))} only"
        shards = [each.shards for each in kept if each.shards]
        if shards and len(shards) < shards[0]:
            return f"{folder} has {len(shards)} of {shards[0]} files of weights"
        for each in kept:
            if each.name.endswith(SAFETENSORS) and (problem := file_problem(path / each.name)):
                return problem
    return None


def file_problem(file: Path) -> str | None:
    """Returns why a file is not a complete safetensors file; None if it is."""
    if file.suffix != SAFETENSORS:
        return f"{file.name} is no {SAFETENSORS} file"
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = stream.read(length) if length < min(size, _MAX_HEADER) else b""
    try:
        tensors = json.loads(header)
        end = max((each["data_offsets"][1] for name, each in tensors.items() if name != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{file.name} is not in the format safetensors"
    return f"only a part of {file.name} is here" if 8 + length + end > size else None


def _is_loaded(folder: str, index: Mapping[str, Any] | None) -> bool:
    return index is None or _is_modular(index) or folder in NATIVE_FOLDERS or folder in read_components(index)


def _is_modular(index: Mapping[str, Any] | None) -> bool:
    """Returns whether each component in the index names its own folder and variant."""
    return index is not None and "_blocks_class_name" in index


def _weights_by_folder(
    names: Collection[str], index: Mapping[str, Any] | None, choice: WeightsChoice
) -> dict[str, list[_Weights]]:
    """Returns the weights of each folder in its better format: safetensors, else pickles."""
    found: dict[str, list[_Weights]] = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        top, _, below = folder.partition("/")
        match = _WEIGHTS.fullmatch(file)
        if match is None or not folder or top in choice.replaced or not _is_loaded(top, index):
            continue
        if not below or top in NATIVE_FOLDERS:
            variant = match["variant"] or match["old_variant"] or match["index"] or match["old_index"] or ""
            found.setdefault(folder, []).append(_Weights(name, variant, match["format"], int(match["shards"] or 0)))
    for folder, files in found.items():
        if better := [each for each in files if each.format == "safetensors"]:
            found[folder] = better
    return found
