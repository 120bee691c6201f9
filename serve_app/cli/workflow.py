"""The command `gen-serve workflow add`: an endpoint from a ComfyUI workflow."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from deployments.contract.workflow import ObjectInfo, Place, Workflow, WorkflowError
from serve_app.cli.output import say
from serve_app.schemas.workflow import BoundInput, WorkflowInput, bind

_SAMPLER_LINKS: Final = ("positive", "negative")
_MODERATION: Final = """moderation:
  text: [{backend: lexicon}]
  images: [{backend: skin}]
  thresholds:
    sexual content: [0.2, 0.4, 0.65, 0.8, 0.85, 0.9]
    violence: [0.3, 0.5, 0.65, 0.8, 0.9, 0.95]
    hate: [0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    self-harm: [0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    illegal acts: [0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    child safety: [0.1]
"""

workflow = typer.Typer(help="Endpoints from ComfyUI workflows.", no_args_is_help=True)


@workflow.callback()
def _group() -> None:
    pass


@workflow.command("add")
def add(
    file: Annotated[Path, typer.Argument(help="Workflow in API format: in ComfyUI, Workflow > Export (API).")],
    url: Annotated[
        str, typer.Option("--url", help="Address of the ComfyUI that runs it.", show_default=True)
    ] = "http://127.0.0.1:8188",
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the endpoint. Default: gen- and the file's name.")
    ] = None,
    catalog: Annotated[
        Path, typer.Option("--catalog", help="Catalog to add the endpoint to; a new one is written if missing.")
    ] = Path("workflows-catalog.yaml"),
) -> None:
    """Propose the inputs of a workflow, and write model and endpoint to a catalog.

    \b
    gen-serve workflow add portrait.json
    gen-serve workflow add portrait.json --url http://gpu-1:8188 --name gen-portrait
    """
    from serve_app.cluster.checks.workflows import fetch_object_info

    graph = Workflow.load(file)
    model = re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-") or "workflow"
    endpoint = name or f"gen-{model}"
    info: ObjectInfo | None = None
    try:
        info = fetch_object_info(url)
    except WorkflowError as problem:
        say(f"warning: {problem}; ranges and options are those of the file alone")
    inputs = propose(graph, info)
    bound = bind(graph, inputs, info)
    text = catalog.read_text() if catalog.exists() else ""
    if re.search(rf"^  {re.escape(model)}:|^  {re.escape(endpoint)}:", text, re.MULTILINE):
        raise ValueError(f"{catalog} has {model} or {endpoint} already: choose another --name, or remove it there")
    engine = {"kind": "comfyui", "workflow": str(file.resolve()), "url": url}
    text = _insert(text, "models", model, {"backend": "engine", "engine": engine})
    written = {key: _as_yaml(value) for key, value in inputs.items()}
    served = {"summary": f"Workflow {file.name}", "request": "workflow", "model": model, "inputs": written}
    text = _insert(
        text, "endpoints", endpoint, served | {"price": {"first": 1}, "safety": {"default": 2, "approved": 5}}
    )
    text = text if "\nmoderation:" in text else f"{text}\n{_MODERATION}"
    catalog.write_text(text)
    profile = catalog.with_name(catalog.name.replace("-catalog", "")) if "-catalog" in catalog.name else None
    if profile is not None:
        text = profile.read_text() if profile.exists() else f"data_dir: .gen\ncatalog: {catalog}\n"
        # One in ComfyUI's worker, one in its queue: the others wait in this service's fair queue.
        profile.write_text(_insert(text, "models", model, {"max_running": 2}))
    say(f"{catalog} has the endpoint {endpoint} with the inputs {', '.join(inputs) or '(none)'}: edit it as you like")
    body = json.dumps({each.name: _example(each) for each in bound if each.is_file or each.settings.role == "prompt"})
    say(
        f"gen-serve check --config {profile or 'PROFILE'}\n"
        f"gen-serve up --config {profile or 'PROFILE'}\n"
        f'curl -H "x-key: $(cat .gen/key)" -H "content-type: application/json" -d {shlex.quote(body)} '
        f"http://127.0.0.1:8000/v1/{endpoint}"
    )


def propose(graph: Workflow, info: ObjectInfo | None = None) -> dict[str, WorkflowInput]:
    """Returns the inputs that people mostly change: prompts, seeds, sizes, steps, guidance, images and LoRA."""
    proposed: dict[str, WorkflowInput] = {}

    def add(name: str, **settings: Any) -> None:
        if is_fraction(settings["at"]):
            settings["type"] = "float"
        if (at := settings["at"]) and not isinstance(at, str) and len(at) == 1:
            settings["at"] = at[0]
        number = 1
        while (unique := name if number == 1 else f"{name}_{number}") in proposed:
            number += 1
        proposed[unique] = WorkflowInput.model_validate(settings)

    def is_fraction(at: str | tuple[str, ...]) -> bool:
        """Returns whether the server takes fractions where the file has a whole number."""
        place = graph.find_place(at if isinstance(at, str) else at[0])
        declared = info.input_type(graph.class_of(place.node), place.input) if info else None
        return declared is not None and declared.type is float and isinstance(graph.value(place), int)

    positive, negative = (set(_texts(graph, link)) for link in _SAMPLER_LINKS)
    if found := sorted(positive - negative, key=str) or sorted(_places(graph, "text", str), key=str)[:1]:
        add("prompt", at=tuple(map(str, found)), role="prompt")
    if found := sorted(negative - positive, key=str):
        add("negative_prompt", at=tuple(map(str, found)), role="negative_prompt")
    if seeds := [str(place) for key in ("seed", "noise_seed") for place in _places(graph, key, int)]:
        add("seed", at=tuple(seeds), role="seed")
    for node in graph.graph:
        if "Latent" in graph.class_of(node) and {"width", "height"} <= _literals(graph, node, int):
            add("size", at=(f"{node}.width", f"{node}.height"), role="size")
            break
    if steps := [str(place) for place in _places(graph, "steps", int)]:
        value = graph.value(graph.find_place(steps[0]))
        add("steps", at=tuple(steps), role="steps", min=1, max=max(50, int(value)))
    for key in ("cfg", "guidance"):
        if found := [str(place) for place in _places(graph, key, float)]:
            add("guidance", at=tuple(found), min=0, max=30)
    for node, each in graph.graph.items():
        for key, value in each["inputs"].items():
            place = Place(node, key)
            if not isinstance(value, list) and (file_type := graph.file_type(place)) in ("image", "mask"):
                add(file_type, at=str(place), type=file_type)
            elif key == "lora_name" and isinstance(value, str):
                declared = info.input_type(each["class_type"], key) if info else None
                add("lora", at=str(place), options=(declared and declared.options) or (value,))
            elif key == "strength_model" and not isinstance(value, list):
                add("lora_strength", at=str(place), min=0, max=2)
    return proposed


def _places(graph: Workflow, key: str, value_type: type) -> Iterator[Place]:
    """Yields the inputs of this name that have a value of the type, and no link."""
    for node in graph.graph:
        if key in _literals(graph, node, value_type):
            yield Place(node, key)


def _literals(graph: Workflow, node: str, value_type: type) -> set[str]:
    accepted = (int, float) if value_type is float else value_type
    inputs = graph.graph[node]["inputs"]
    return {key for key, value in inputs.items() if isinstance(value, accepted) and not isinstance(value, bool)}


def _texts(graph: Workflow, link: str) -> Iterator[Place]:
    """Yields the texts from which the inputs `link` of all nodes come."""
    for node in graph.graph.values():
        pending = [node["inputs"].get(link)]
        seen: set[str] = set()
        while pending:
            value = pending.pop()
            if not (isinstance(value, list) and value and value[0] in graph.graph) or value[0] in seen:
                continue
            source = value[0]
            seen.add(source)
            if "text" in _literals(graph, source, str):
                yield Place(source, "text")
                continue
            inputs = graph.graph[source]["inputs"]
            pending += [inputs[link]] if link in inputs else inputs.values()


def _insert(text: str, section: str, name: str, value: dict[str, Any]) -> str:
    """Returns a YAML text with `name` as the first entry of a top-level section, which is added if missing."""
    block = yaml.safe_dump({name: value}, sort_keys=False, allow_unicode=True, width=110)
    block = "".join(f"  {line}" for line in block.splitlines(keepends=True))
    heading = re.search(rf"^{section}:[^\S\n]*\n", text, re.MULTILINE)
    if heading is None:
        return f"{text}{section}:\n{block}"
    return text[: heading.end()] + block + text[heading.end() :]


def _as_yaml(settings: WorkflowInput) -> dict[str, Any]:
    values = settings.model_dump(exclude_unset=True, mode="json")
    return {
        key: int(value) if isinstance(value, float) and value.is_integer() else value for key, value in values.items()
    }


def _example(each: BoundInput) -> Any:
    return "https://example.com/image.png" if each.is_file else each.default
