"""Checks of pipelines against their endpoints, before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.tiny_pipelines import PIPELINES, SPECIAL_PIPELINES, build

from deployments.contract.pipelines import TESTED, write_table
from serve_app.cluster.checks.pipelines import check_pipelines
from serve_app.cluster.checks.result import Verdict
from serve_app.config import catalog
from serve_app.config.settings import Settings


def messages(tmp_path: Path, request: str, verdict: Verdict = Verdict.REFUSED, **model: Any) -> list[str]:
    endpoint = {"request": request, "model": "m", "price": {"first": 1}, "safety": {"approved": 5}}
    endpoint["fields"] = model.pop("fields", {})
    values = {"models": {"m": {"checkpoint": "owner/name", "steps": 4, **model}}, "endpoints": {"gen-m": endpoint}}
    (tmp_path / "catalog.yaml").write_text(yaml.safe_dump(values))
    settings = Settings(catalog=tmp_path / "catalog.yaml")
    results = check_pipelines(settings, catalog.load(settings))
    return [result.message for result in results if result.verdict is verdict]


def test_pipeline_that_accepts_its_requests_is_fine(tmp_path: Path) -> None:
    qwen: dict[str, Any] = {"pipeline": "QwenImagePipeline", "pipeline_kwargs": {"true_cfg_scale": 1}}
    assert messages(tmp_path, "text-to-image", **qwen) == []
    assert messages(tmp_path, "inpaint", pipeline="StableDiffusionXLInpaintPipeline") == []


@pytest.mark.parametrize(
    ("request_form", "pipeline", "problem"),
    [
        ("edit", "QwenImagePipeline", "it takes no image"),
        ("text-to-video", "ZImagePipeline", "it takes no num_frames"),
        ("text-to-image", "StableAudioPipeline", "it makes sound, and results here are images and videos"),
        ("text-to-image", "FluxImg2ImgPipeline", "it needs an image"),
        ("image-to-video", "StableVideoDiffusionPipeline", "it takes no prompt"),
        ("text-to-video", "Cosmos2_5_TransferPipeline", "it needs controls, which no request has"),
    ],
)
def test_unsupported_request_of_a_pipeline_is_named(
    request_form: str, pipeline: str, problem: str, tmp_path: Path
) -> None:
    [found] = messages(tmp_path, request_form, pipeline=pipeline)
    assert found.endswith(f"{pipeline} of models.m can't do {request_form}: {problem}")


@pytest.mark.parametrize(
    ("request_form", "model", "message"),
    [
        (
            "edit",
            {"pipeline": "FluxKontextPipeline", "fields": {"max_images": 2}},
            "endpoints.gen-m.fields.max_images: FluxKontextPipeline of models.m takes one image",
        ),
        ("text-to-image", {"pipeline": "NoSuchPipeline"}, "models.m.pipeline: diffusers has no NoSuchPipeline"),
        (
            "text-to-image",
            {"pipeline": "ZImagePipeline", "pipeline_kwargs": {"true_cfg": 2}},
            "models.m.pipeline_kwargs: ZImagePipeline takes no true_cfg",
        ),
    ],
)
def test_unsupported_setting_of_a_pipeline_is_named(
    request_form: str, model: dict[str, Any], message: str, tmp_path: Path
) -> None:
    [found] = messages(tmp_path, request_form, **model)
    assert found.endswith(message)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"quantization": {"method": "int3"}}, "quantization.method"),
        ({"quantization": {"method": "gguf"}}, "file is needed for gguf"),
        ({"quantization": {"method": "gguf", "file": "a", "files": {"b": "c"}}}, "either file is needed for gguf"),
        ({"quantization": {"method": "gguf", "file": "a", "parts": ["b", "c"]}}, "files has one for each"),
        ({"quantization": {"method": "fp8", "files": {"b": "c"}}}, "file and files are for gguf only"),
        ({"offload": "group", "device": "cpu"}, "offload is for GPUs"),
        ({"offloading": "group"}, "did you mean offload"),
        ({"max_running": 4}, "belongs in the profile"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(model: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        messages(tmp_path, "text-to-image", **model)


def test_pipeline_kwargs_replace_required_parameters(tmp_path: Path) -> None:
    transfer: dict[str, Any] = {"pipeline": "Cosmos2_5_TransferPipeline", "pipeline_kwargs": {"controls": "edge.mp4"}}
    assert messages(tmp_path, "text-to-video", **transfer) == []


def test_settings_without_effect_are_named(tmp_path: Path) -> None:
    native: dict[str, Any] = {"checkpoint": "bundled/flux", "packed_attention": ["varlen"], "tile_above": 1024}
    assert messages(tmp_path, "text-to-image", Verdict.WARNING, **native) == []
    quantized = {**native, "quantization": {"method": "nf4"}}
    assert messages(tmp_path, "text-to-image", **quantized) == []
    assert messages(tmp_path, "text-to-image", Verdict.WARNING, **quantized) == [
        "models.m: packed_attention, tile_above have no effect, because diffusers' pipeline runs it"
    ]


def test_native_family_has_one_dtype(tmp_path: Path) -> None:
    model: dict[str, Any] = {"checkpoint": "bundled/flux", "dtype": {"default": "bfloat16", "vae": "float32"}}
    assert messages(tmp_path, "text-to-image", **model) == [
        "models.m.dtype: a native family has one for all components"
    ]
    assert messages(tmp_path, "text-to-image", **model, backend="diffusers") == []


def test_single_file_is_checked_by_its_configuration(tmp_path: Path) -> None:
    one: dict[str, Any] = {"checkpoint": "/models/mine.safetensors", "config_from": "bundled/flux"}
    assert messages(tmp_path, "text-to-image", **one) == []
    assert messages(tmp_path, "edit", **one) == [
        "endpoints.gen-m: FluxPipeline of models.m can't do edit: it takes no image"
    ]
    assert messages(tmp_path, "text-to-image", **one, quantization={"method": "nf4"}) == [
        "models.m.quantization.method must be gguf for weights in one file"
    ]


@pytest.mark.slow
def test_table_of_pipelines_is_current(repository: Path, tmp_path: Path) -> None:
    page = repository / "docs/models.md"
    copy = tmp_path / "models.md"
    copy.write_text(page.read_text())
    write_table(copy)
    assert copy.read_text() == page.read_text(), "python -m deployments.contract.pipelines"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_tested_pipelines_are_those_of_the_tiny_checkpoints(tmp_path: Path) -> None:
    built = set()
    for name in PIPELINES | SPECIAL_PIPELINES:
        index = json.loads((build(name, tmp_path / name) / "model_index.json").read_text())
        built.add(index["_class_name"])
    assert built == TESTED
