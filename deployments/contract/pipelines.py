"""Pipeline classes of the installed diffusers: inputs and results, read from their source, as an import would import
torch.

`python -m deployments.contract.pipelines` writes the table of all of them into docs/models.md.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

_CLASS: Final = re.compile(r"^class (\w+)\b", re.MULTILINE)
_MEDIA: Final = frozenset(("images", "image", "frames", "video"))
_OTHER_RESULTS: Final = MappingProxyType(
    {
        "audios": "it makes sound, and results here are images and videos",
        "texts": "it makes text, and results here are images and videos",
        "prediction": "it makes maps of depth or normals, and results here are images and videos",
        "prompt_embeds": "it makes embeddings for another pipeline",
        "image_embeds": "it makes embeddings for another pipeline",
        "image_embeddings": "it makes embeddings for another pipeline",
    }
)
_FORM_PARAMETERS: Final = frozenset(
    ("prompt", "image", "images", "mask_image", "mask", "num_frames", "frames", "width", "height", "strength")
)
"""Parameters that requests have a value for."""
_REQUIRED: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = MappingProxyType(
    {
        "text-to-image": (("prompt",),),
        "edit": (("prompt",), ("image", "images")),
        "inpaint": (("prompt",), ("image", "images"), ("mask_image", "mask")),
        "text-to-video": (("prompt",), ("num_frames", "frames")),
        "image-to-video": (("prompt",), ("image", "images"), ("num_frames", "frames")),
    }
)
"""Parameters that each custom form needs, by their names in pipelines."""
_IMAGE_NEEDED: Final = re.compile(
    r"Img2Img|ImageToImage|ImageToVideo|Image2Video|I2V|I2I|Inpaint|Fill|Edit|Pix2Pix|Upscale|Outpaint|Framepack|Refiner"
    r"|ControlNet|Adapter|PaintByExample|SuperRes|PIAPipeline|ConsisID|StableDiffusionDepth|ImageVariation"
)
"""Classes that need an image although its parameter has a default."""
_MASK_NEEDED: Final = re.compile(r"Inpaint|FluxFill")
_FURTHER_REQUIRED: Final = (
    (re.compile("VideoToVideo"), ("video",)),
    (re.compile("Control"), ("control_image", "control_video", "conditioning_frames")),
)
"""Parameters that classes of these names need although they have a default."""
_REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Combined": "it is several pipelines in one, whose steps can't be told apart",
        "ShapE": "it makes bodies in space, and results here are images and videos",
        "PAG": "it changes its network for a call, and others run beside",
        "Upscale": "its results are larger than asked",
        "SuperResolution": "its results are larger than asked",
        "Layered": "it needs an image with transparency, which no request has",
    }
)
"""Reasons by parts of class names."""
_SEVERAL_IMAGES: Final = frozenset(
    (
        *("Flux2Pipeline", "Flux2KleinPipeline", "Flux2KleinKVPipeline", "QwenImageEditPlusPipeline"),
        *("QwenImage21Pipeline", "GlmImagePipeline", "JoyImageEditPlusPipeline", "ZImageOmniPipeline"),
        "BriaFibo2Pipeline",
    )
)
"""Classes that take a list of images as one request; others take it as several requests."""
TESTED: Final = frozenset(
    (
        *("StableDiffusionPipeline", "StableDiffusionXLPipeline", "StableDiffusion3Pipeline"),
        *("QwenImagePipeline", "QwenImageEditPipeline", "QwenImageEditPlusPipeline", "ZImagePipeline"),
        *("FluxPipeline", "ChromaPipeline", "Kandinsky5T2IPipeline"),
        *("WanPipeline", "WanImageToVideoPipeline", "HunyuanVideo15Pipeline", "HunyuanVideoFramepackPipeline"),
        "LTX2Pipeline",
    )
)
"""Classes that the tests run with a tiny checkpoint."""


@dataclass(frozen=True, slots=True)
class PipelineClass:
    name: str
    parameters: Mapping[str, bool]
    """Parameters of `__call__`, and whether they have no default."""
    components: frozenset[str] = field(default=frozenset())
    guides_by_default: bool = True
    """False when a negative prompt has no effect unless `true_cfg_scale` is set."""
    results: frozenset[str] = field(default=frozenset())
    """Fields that a call returns; empty if the source does not show them."""

    @property
    def needs_image(self) -> bool:
        image = next((name for name in ("image", "images") if name in self.parameters), None)
        return image is not None and (self.parameters[image] or bool(_IMAGE_NEEDED.search(self.name)))

    @property
    def refusal(self) -> str | None:
        """Reason why the class is never served; None if it may be."""
        return next((reason for words, reason in _REFUSED.items() if words in self.name), None)

    @property
    def makes_video(self) -> bool:
        return not self.parameters.keys().isdisjoint(("num_frames", "frames")) or self.results == {"frames"}

    def problem(self, form: str, given: Collection[str] = ()) -> str | None:
        """Returns why the pipeline can't serve requests of a custom form; None if it can. `given` are parameters that
        every call has."""
        if self.refusal is not None:
            return self.refusal
        if self.results and self.results.isdisjoint(_MEDIA):
            other = (reason for result, reason in _OTHER_RESULTS.items() if result in self.results)
            return next(other, "what it makes is neither an image nor a video")
        missing = [names[0] for names in _REQUIRED[form] if self.parameters.keys().isdisjoint(names)]
        if missing:
            return f"it takes no {', '.join(missing)}"
        needed = [name for name, is_needed in self.parameters.items() if is_needed and name not in _FORM_PARAMETERS]
        for pattern, names in _FURTHER_REQUIRED:
            needed += [name for name in names if name in self.parameters and pattern.search(self.name)]
        if needed := [name for name in needed if name not in given]:
            return f"it needs {', '.join(dict.fromkeys(needed))}, which no request has"
        names = {name for names in _REQUIRED[form] for name in names}
        if self.needs_image and "image" not in names:
            return "it needs an image"
        if _MASK_NEEDED.search(self.name) and "mask" not in names:
            return "it needs a mask"
        if self.makes_video and "num_frames" not in names:
            return "it makes videos"
        return None

    @property
    def forms(self) -> list[str]:
        return [form for form in _REQUIRED if self.problem(form) is None]


def takes_several_images(name: str) -> bool:
    """Returns whether the pipeline class `name` makes one result from several input images."""
    return name in _SEVERAL_IMAGES


@cache
def find_pipeline(name: str) -> PipelineClass | None:
    """Returns the pipeline class `name`; None if diffusers has none."""
    file = _sources().get(name)
    if file is None:
        return None
    nodes = {each.name: each for each in ast.parse(file.read_text()).body if isinstance(each, ast.ClassDef)}
    node = nodes[name]
    methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
    bases = [known for base in node.bases if isinstance(base, ast.Name) and (known := find_pipeline(base.id))]
    components = frozenset(_arguments(methods["__init__"])) if "__init__" in methods else frozenset[str]()
    if "__call__" in methods:
        call = methods["__call__"]
        returned = [each.value for each in ast.walk(call) if isinstance(each, ast.Return)]
        results = {each.arg for value in returned if isinstance(value, ast.Call) for each in value.keywords if each.arg}
        return PipelineClass(name, _arguments(call), components, _guides_by_default(call), frozenset(results))
    if bases:
        return replace(bases[0], name=name, components=components or bases[0].components)
    return None


def _arguments(function: ast.FunctionDef) -> dict[str, bool]:
    """Returns the parameters of a method, and whether they have no default."""
    arguments = function.args
    needed = len(arguments.args) - len(arguments.defaults)
    named = {each.arg: index < needed for index, each in enumerate(arguments.args) if each.arg != "self"}
    return named | {
        each.arg: default is None for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    }


def _guides_by_default(call: ast.FunctionDef) -> bool:
    defaults = zip(reversed(call.args.args), reversed(call.args.defaults), strict=False)
    scale = next((each for argument, each in defaults if argument.arg == "true_cfg_scale"), None)
    is_distilled = any(argument.arg == "guidance_scale" for argument in call.args.args)
    value = scale.value if isinstance(scale, ast.Constant) else None
    return not is_distilled or scale is None or (isinstance(value, (int, float)) and value > 1)


@cache
def _sources() -> dict[str, Path]:
    """Returns the files of all pipelines by the classes in them."""
    spec = find_spec("diffusers")
    assert spec is not None
    assert spec.origin is not None
    files = sorted((Path(spec.origin).parent / "pipelines").rglob("pipeline_*.py"))
    return {name: file for file in files for name in _CLASS.findall(file.read_text())}


def table() -> Iterator[str]:
    """Yields the lines of a table of all classes that are not deprecated, by the requests that they serve."""
    groups: dict[str, list[str]] = {}
    for name, file in sorted(_sources().items()):
        if not name.endswith("Pipeline") or "Onnx" in name or "deprecated" in file.parts:
            continue
        if (found := find_pipeline(name)) is None:
            continue
        reasons = {found.problem(form) for form in _REQUIRED} - {None, "it needs an image", "it makes videos"}
        reason = min(filter(None, reasons), default="", key=lambda text: ("takes no" in text, text))
        served = ", ".join(found.forms) or f"refused: {reason}"
        groups.setdefault(served, []).append(f"**`{name}`**" if name in TESTED else f"`{name}`")
    yield f"| requests | classes of diffusers {version('diffusers')} |"
    yield "|---|---|"
    for served, names in sorted(groups.items(), key=lambda group: (group[0].startswith("refused"), group[0])):
        yield f"| {served} | {', '.join(names)} |"


BEGIN: Final = "<!-- pipelines: written by python -m deployments.contract.pipelines -->"
END: Final = "<!-- end of pipelines -->"


def write_table(page: Path) -> None:
    before, _, remaining = page.read_text().partition(BEGIN)
    after = remaining.partition(END)[2]
    page.write_text("\n".join((before + BEGIN, "", *table(), "", END + after)))


if __name__ == "__main__":
    write_table(Path("docs/models.md"))
