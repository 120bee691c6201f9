"""What endpoints need of pipelines, checked before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.cluster.finding import Verdict
from serve_app.cluster.pipelines import check_pipelines, pipeline_parameters
from serve_app.config import catalog
from serve_app.config.settings import Settings


def messages(tmp_path: Path, request: str, **model: Any) -> list[str]:
    endpoint = {"request": request, "model": "m", "price": {"first": 1}, "safety": {"approved": 5}}
    values = {"models": {"m": {"checkpoint": "owner/name", "steps": 4, **model}}, "endpoints": {"gen-m": endpoint}}
    (tmp_path / "catalog.yaml").write_text(yaml.safe_dump(values))
    settings = Settings(catalog=tmp_path / "catalog.yaml")
    findings = check_pipelines(settings, catalog.load(settings))
    return [finding.message for finding in findings if finding.verdict is Verdict.REFUSED]


def test_a_pipeline_that_takes_all_is_fine(tmp_path: Path) -> None:
    assert (
        messages(tmp_path, "text-to-image", pipeline="QwenImagePipeline", pipeline_kwargs={"true_cfg_scale": 1}) == []
    )
    assert messages(tmp_path, "inpaint", pipeline="StableDiffusionXLInpaintPipeline") == []


@pytest.mark.parametrize(
    ("request_form", "model", "message"),
    [
        ("edit", {"pipeline": "QwenImagePipeline"}, "endpoints.gen-m: QwenImagePipeline of models.m takes no image"),
        (
            "text-to-video",
            {"pipeline": "ZImagePipeline"},
            "endpoints.gen-m: ZImagePipeline of models.m takes no num_frames",
        ),
        ("text-to-image", {"pipeline": "NoSuchPipeline"}, "models.m.pipeline: diffusers has no NoSuchPipeline"),
        (
            "text-to-image",
            {"pipeline": "ZImagePipeline", "pipeline_kwargs": {"true_cfg": 2}},
            "models.m.pipeline_kwargs: ZImagePipeline takes no true_cfg",
        ),
    ],
)
def test_what_a_pipeline_does_not_take_is_named(
    request_form: str, model: dict[str, Any], message: str, tmp_path: Path
) -> None:
    assert messages(tmp_path, request_form, **model) == [message]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"quantization": {"method": "int3"}}, "quantization.method"),
        ({"quantization": {"method": "gguf"}}, "file is needed for gguf"),
        ({"offload": "group", "device": "cpu"}, "offload is for GPUs"),
        ({"offloading": "group"}, "did you mean offload"),
        ({"max_running": 4}, "belongs in the profile"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(model: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        messages(tmp_path, "text-to-image", **model)


def test_parameters_are_those_of_the_class_or_its_base() -> None:
    assert {"prompt", "true_cfg_scale"} <= (pipeline_parameters("QwenImagePipeline") or set())
    assert pipeline_parameters("NoSuchPipeline") is None
