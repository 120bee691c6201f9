"""Signatures of diffusers' pipelines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import diffusers
import pytest
from support.images import image_file
from support.jobs import make_job

from deployments.backend import JobError
from deployments.backends.pipeline_run import has_sections
from deployments.backends.pipeline_signature import PipelineSignature
from deployments.contract.capabilities import unsupported_fields
from deployments.contract.model import ModelConfig
from deployments.contract.request import VideoParams

D: Any = diffusers


def signature(name: str, **attributes: Any) -> PipelineSignature:
    """Returns the signature of a pipeline with the given attributes."""
    kind = type(name, (getattr(D, name),), {"__init__": lambda self: self.__dict__.update(attributes)})
    return PipelineSignature.from_pipeline(kind())


def network(**config: Any) -> Any:
    return SimpleNamespace(config=config)


@pytest.mark.parametrize(
    ("name", "guidance"),
    [
        ("FluxPipeline", "guidance_scale"),
        ("QwenImagePipeline", "true_cfg_scale"),
        ("QwenImage21Pipeline", "true_cfg_scale"),
        ("HunyuanImagePipeline", "distilled_guidance_scale"),
    ],
)
def test_guidance_goes_to_the_parameter_that_has_effect(name: str, guidance: str | None) -> None:
    assert PipelineSignature.from_pipeline(getattr(D, name)).guidance == guidance


def test_distilled_guidance_needs_a_network_that_reads_it() -> None:
    assert signature("HunyuanImagePipeline", transformer=network(guidance_embeds=False)).guidance is None
    assert signature("HunyuanImagePipeline", transformer=network(guidance_embeds=True)).guidance is not None


@pytest.mark.parametrize(
    ("name", "attributes", "multiple"),
    [
        ("WanPipeline", {"vae_scale_factor_spatial": 16, "transformer": network(patch_size=(1, 2, 2))}, 32),
        ("LTXPipeline", {"vae_spatial_compression_ratio": 32, "transformer": network(patch_size=1)}, 32),
        ("ZImagePipeline", {"vae_scale_factor": 8, "transformer": network(all_patch_size=(2,))}, 16),
        ("FluxPipeline", {"vae_scale_factor": 8, "transformer": network(patch_size=1)}, 16),
        ("StableDiffusionXLPipeline", {"vae_scale_factor": 8}, 8),
    ],
)
def test_sides_are_rounded_up_to_the_models_multiple(name: str, attributes: dict[str, Any], multiple: int) -> None:
    own = signature(name, **attributes)
    assert own.multiple == multiple
    arguments = own.arguments([make_job("a", width=80, height=8)], {})
    assert (arguments["width"], arguments["height"]) == (-(-80 // multiple) * multiple, multiple)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("StableDiffusionXLPipeline", {"references": ("inputs/a",)}, "takes no images"),
        ("StableDiffusionXLPipeline", {"mask": "inputs/a"}, "takes no mask"),
        ("StableDiffusionXLPipeline", {"strength": 0.5}, "takes no strength"),
        ("FluxKontextPipeline", {"references": ("inputs/a", "inputs/b")}, "takes no second image"),
        ("FluxImg2ImgPipeline", {"steps": 1, "strength": 0.5}, "steps times strength must be at least 1"),
        ("FluxImg2ImgPipeline", {"steps": 4, "strength": 0.0}, "steps times strength must be at least 1"),
        ("AnimateDiffPipeline", {"video": VideoParams(frames=33)}, "makes at most 32 frames, not 33"),
    ],
)
def test_unsupported_job_is_rejected(name: str, fields: dict[str, Any], message: str) -> None:
    own = signature(name, motion_adapter=network(motion_max_seq_length=32))
    with pytest.raises(JobError, match=message):
        own.check(make_job("a", **fields))


def test_second_image_is_accepted_where_supported() -> None:
    signature("Flux2Pipeline").check(make_job("a", references=("inputs/a", "inputs/b")))


@pytest.mark.parametrize(
    ("name", "constants", "taken"),
    [
        ("FluxPipeline", {}, False),
        ("FluxPipeline", {"true_cfg_scale": 4}, True),
        ("QwenImagePipeline", {}, True),
        ("StableDiffusionXLPipeline", {}, True),
    ],
)
def test_negative_prompt_without_effect_is_rejected(name: str, constants: dict[str, Any], taken: bool) -> None:
    assert PipelineSignature.from_pipeline(getattr(D, name), constants).takes_negative_prompt is taken
    config = ModelConfig(checkpoint="owner/name", pipeline=name, pipeline_kwargs=constants)
    assert ("negative_prompt" not in unsupported_fields(config)) is taken


def test_start_image_has_the_requested_size() -> None:
    own = signature("ZImageImg2ImgPipeline", vae_scale_factor=8, transformer=network(all_patch_size=(2,)))
    job = make_job("a", width=80, height=64, references=("inputs/a",), strength=0.5)
    assert own.arguments([job], {"inputs/a": image_file(300, 200)})["image"].size == (80, 64)


def test_frame_group_follows_the_autoencoder() -> None:
    assert signature("MochiPipeline", vae_temporal_scale_factor=6).frame_group == 6


@pytest.mark.parametrize(
    ("name", "output_type"),
    [
        ("FluxPipeline", "pt"),
        ("WanPipeline", "pt"),
        ("IFPipeline", "np"),  # the safety checker skips tensors
        ("KandinskyPipeline", "np"),  # tensors are in -1 to 1
        ("CosmosTextToWorldPipeline", "np"),
    ],
)
def test_output_type_keeps_results_on_the_device(name: str, output_type: str) -> None:
    kind = getattr(D, name, None) or getattr(D.pipelines.kandinsky, name)
    assert PipelineSignature.from_pipeline(kind).output_type == output_type


@pytest.mark.parametrize(
    ("name", "sections"),
    [
        ("WanPipeline", False),
        ("FluxPipeline", False),
        ("HunyuanVideoFramepackPipeline", True),
        ("SkyReelsV2DiffusionForcingPipeline", True),
        ("WanAnimatePipeline", True),
        ("LTXI2VLongMultiPromptPipeline", True),
        ("HeliosPipeline", True),
    ],
)
def test_pipelines_with_sections_are_detected(name: str, sections: bool) -> None:
    assert has_sections(getattr(D, name)) is sections
