"""Loading options of diffusers' pipelines, on tiny checkpoints."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl_temporal_decoder import AutoencoderKLTemporalDecoder
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel
from diffusers.models.transformers.transformer_wan import WanTransformer3DModel
from diffusers.pipelines.flux.pipeline_flux import FluxPipeline
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from safetensors.torch import save_file
from support.ldm_files import build_ldm_file
from support.tiny_pipelines import build

from deployments import diffusers_loading, native_loading
from deployments.backends.diffusers import denoisers_of
from deployments.checkpoint_files import CheckpointError
from deployments.contract.model import ModelConfig
from deployments.diffusers_loading import LoadedPipeline, image_processor, load_pipeline
from deployments.native_loading import is_native

pytestmark = pytest.mark.filterwarnings("ignore")  # pipelines call their own deprecated functions
QUANTIZED = """
import sys
from pathlib import Path
import gguf
from gguf.quants import quantize
from safetensors.torch import load_file
from deployments.contract.model import ModelConfig, Quantization
from deployments.diffusers_loading import load_pipeline

folder = Path(sys.argv[1])
writer = gguf.GGUFWriter(folder / "transformer.gguf", "flux")
for name, tensor in load_file(next((folder / "transformer").glob("*.safetensors"))).items():
    blocks = tensor.ndim == 2 and tensor.shape[-1] % 32 == 0
    kind = gguf.GGMLQuantizationType.Q8_0 if blocks else gguf.GGMLQuantizationType.F32
    writer.add_tensor(name, quantize(tensor.float().numpy(), kind), raw_dtype=kind)
writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
file = str(folder / "transformer.gguf")
gguf_files = {"files": {"transformer": file}}
for method, options in (("int8", {}), ("fp8", {}), ("gguf", {"file": file}), ("gguf", gguf_files)):
    quantization = Quantization(method=method, **options)
    config = ModelConfig(checkpoint=str(folder), device="cpu", dtype="bfloat16", quantization=quantization)
    pipeline = load_pipeline(config).pipeline
    print(method, *sorted({type(each).__name__ for each in pipeline.transformer.parameters()}))
"""
"""A program of a replica with packages that only some replicas have."""


def assert_same_weights(pipeline: Any, expected: Any) -> None:
    for name, part in expected.components.items():
        if isinstance(part, torch.nn.Module):
            own = getattr(pipeline, name).state_dict()
            assert all(torch.equal(own[key], tensor) for key, tensor in part.state_dict().items()), name


def loading_arguments(monkeypatch: pytest.MonkeyPatch, config: ModelConfig) -> dict[str, Any]:
    """Returns the arguments of `from_pretrained`."""
    arguments: dict[str, Any] = {}

    def from_pretrained(folder: str, **options: Any) -> None:
        arguments.update(options)
        raise OSError("not now")

    monkeypatch.setattr(FluxPipeline, "from_pretrained", from_pretrained)
    monkeypatch.setattr(diffusers_loading.diffusers, "PipelineQuantizationConfig", MagicMock())
    monkeypatch.setattr(diffusers_loading.diffusers, "BitsAndBytesConfig", MagicMock())
    with pytest.raises(CheckpointError, match="not now"):
        load_pipeline(config)
    return arguments


@pytest.fixture(scope="module")
def flux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("flux-schnell", tmp_path_factory.mktemp("loading") / "flux")


@pytest.fixture(scope="module")
def wan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wan-t2v", tmp_path_factory.mktemp("loading") / "wan")


def config_for(checkpoint: Path, **settings: Any) -> ModelConfig:
    small = {"checkpoint": str(checkpoint), "device": "cpu", "probe": {"width": 64, "height": 64}}
    return ModelConfig.model_validate(small | settings)


def load(checkpoint: Path, **settings: Any) -> LoadedPipeline:
    return load_pipeline(config_for(checkpoint, **settings))


def test_unusable_attention_is_skipped(flux: Path) -> None:
    loaded = load(flux, attention=("flash", "native"))
    assert loaded.setup["attention"] == "native"
    assert loaded.interleaves
    with pytest.raises(CheckpointError, match=r"makes nothing here: flash \("):
        load(flux, attention=("flash",))


def test_uncompilable_model_runs_uncompiled(
    flux: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names settings that have no effect here."""

    def refuse(*arguments: object, **options: object) -> None:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(FluxTransformer2DModel, "compile_repeated_blocks", refuse)
    assert load(flux, compile=True, render_side=64, cfg={"scale": 2}).setup["compiled"] == "failed"
    assert [record.message for record in caplog.records if "native families" in record.message] == [
        f"{flux}: render_side, cfg have no effect, only native families have these"
    ]


def test_step_cache_excludes_other_calls(flux: Path) -> None:
    loaded = load(flux, cache={"method": "first_block", "options": {"threshold": 0.1}})
    [transformer] = denoisers_of(loaded.pipeline)
    assert getattr(transformer, "is_cache_enabled")  # noqa: B009 - of diffusers' mixin
    assert not loaded.interleaves


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cache": {"method": "first_block", "options": {"treshold": 0.1}}}, r"cache\.options"),
        ({"quantization": {"method": "int8", "parts": ["unet"]}}, r"quantization\.parts: .* has no unet"),
        ({"pipeline": "NoPipeline"}, "NoPipeline is no pipeline of diffusers"),
        ({"dtype": {"unet": "float32"}}, r"dtype: .* has no unet"),
    ],
)
def test_setting_that_does_not_fit_the_checkpoint_is_named(flux: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(flux, **settings)


def test_fastest_attention_wins(flux: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, seconds = 0.0, {"native": 5.0, "_native_math": 1.0}

    def probe(pipeline: Any, *_: Any) -> bool:
        nonlocal now
        used = next(iter(pipeline.transformer.attn_processors.values()))._attention_backend
        now += seconds[str(used.value)]
        return True

    monkeypatch.setattr(diffusers_loading, "probe_pipeline", probe)
    monkeypatch.setattr(diffusers_loading.time, "perf_counter", lambda: now)
    assert load(flux, attention=("native", "_native_math")).setup["attention"] == "_native_math"
    seconds["_native_math"] = 9.0
    assert load(flux, attention=("native", "_native_math")).setup["attention"] == "native"


def test_components_with_only_half_precision_are_loaded(flux: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(flux, tmp_path / "flux"))
    for file in (folder / "transformer").glob("*.safetensors"):
        file.rename(file.with_suffix(".fp16.safetensors"))
    assert_same_weights(load(folder).pipeline, DiffusionPipeline.from_pretrained(flux))
    assert type(native_loading.load(config_for(folder, dtype="float32")).family).__name__ == "Flux1"


@pytest.mark.parametrize(("dtype", "variant"), [("float16", "fp16"), ("float32", None)])
def test_variant_of_the_configured_precision_is_loaded(
    flux: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, variant: str | None
) -> None:
    folder = Path(shutil.copytree(flux, tmp_path / "flux"))
    [file] = (folder / "transformer").glob("*.safetensors")
    shutil.copy(file, file.with_suffix(".fp16.safetensors"))
    assert loading_arguments(monkeypatch, config_for(folder, dtype=dtype))["variant"] == variant


@pytest.mark.parametrize(
    ("settings", "device_map"),
    [
        ({"device": "cuda"}, "cuda"),
        ({"device": "cuda", "quantization": {"method": "nf4"}}, "cuda"),
        ({"device": "cuda", "device_map": "balanced"}, "balanced"),
        ({"device": "cuda", "offload": "model"}, None),
        ({"device": "cpu"}, None),
    ],
)
def test_weights_go_to_a_gpu_file_by_file(
    flux: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], device_map: str | None
) -> None:
    arguments = loading_arguments(monkeypatch, config_for(flux, dtype="float32", **settings))
    assert arguments.get("device_map") == device_map


def test_components_can_differ_in_precision(flux: Path, wan: Path) -> None:
    dtype = {"default": "bfloat16", "vae": "float32"}
    loaded = load(wan, dtype=dtype)
    assert (loaded.pipeline.transformer_2.dtype, loaded.pipeline.vae.dtype) == (torch.bfloat16, torch.float32)
    assert loaded.setup["dtype"] == "bfloat16, vae float32"
    with pytest.raises(CheckpointError, match="dtype must be one name for a native family"):
        native_loading.load(config_for(flux, dtype=dtype))


def test_single_file_equals_its_folder(tmp_path: Path) -> None:
    file, stock = build_ldm_file(tmp_path / "mine"), build("sd15", tmp_path / "stock")
    config = config_for(file, config_from=str(tmp_path / "mine"))
    assert not is_native(config)
    assert_same_weights(load_pipeline(config).pipeline, DiffusionPipeline.from_pretrained(stock))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"checkpoint": "{}/nothing.safetensors"}, "neither a file here nor owner/name/path/to/file"),
        ({"checkpoint": "{}/text.safetensors"}, "checkpoint: text.safetensors is not in the format safetensors"),
        ({"config_from": "{}/nowhere"}, "config_from must name a folder or repository that is in reach"),
        ({"config_from": "{}"}, "is no checkpoint: it has neither"),
        ({"pipeline": "QwenImagePipeline"}, "pipeline: QwenImagePipeline can't be loaded from one file"),
        ({"quantization": {"method": "fp8"}}, "quantization.method must be gguf"),
        ({"device_map": "balanced", "device": "cuda"}, "device_map must be null"),
        ({"dtype": {"vae": "float32"}}, "dtype must be one name"),
        ({"checkpoint": "{}/flux"}, "config_from must be null"),
    ],
)
def test_unloadable_single_file_is_refused_with_a_reason(
    tmp_path: Path, flux: Path, settings: dict[str, Any], message: str
) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "mine.safetensors")
    (tmp_path / "text.safetensors").write_text("<html>")
    values = {"checkpoint": "{}/mine.safetensors", "config_from": str(flux), "device": "cpu"} | settings
    placed = {name: each.format(tmp_path) if isinstance(each, str) else each for name, each in values.items()}
    with pytest.raises(CheckpointError, match=message):
        load_pipeline(ModelConfig.model_validate(placed))


def test_several_components_come_from_gguf_files(wan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(shutil.copytree(wan, tmp_path / "wan"))
    files = {part: str(tmp_path / f"{part}.gguf") for part in ("transformer", "transformer_2")}
    for part, file in files.items():
        shutil.rmtree(folder / part)
        Path(file).touch()
    read: list[tuple[str, str]] = []

    def from_single_file(cls: Any, file: str, *, subfolder: str, **options: Any) -> Any:
        read.append((subfolder, file))
        return cls.from_config(original_configs[subfolder])

    original_configs = {part: WanTransformer3DModel.load_config(str(wan), subfolder=part) for part in files}
    monkeypatch.setattr(WanTransformer3DModel, "from_single_file", classmethod(from_single_file))
    monkeypatch.setattr(diffusers_loading.diffusers, "GGUFQuantizationConfig", dict)
    load(folder, quantization={"method": "gguf", "files": files})
    assert read == list(files.items())


def test_autoencoder_without_slicing_is_unchanged() -> None:
    vae = AutoencoderKLTemporalDecoder(block_out_channels=(32,))
    assert hasattr(vae, "enable_slicing")
    pipeline = SimpleNamespace(vae=vae, to=lambda device: None)
    diffusers_loading._place(pipeline, ModelConfig(vae_tiling=True), torch.device("cpu"))


def test_processor_of_any_name_loads_without_torchvision(tmp_path: Path) -> None:
    edit = build("qwen-image-edit", tmp_path / "edit")
    assert list(image_processor(edit)) == ["processor"]
    index = json.loads((edit / "model_index.json").read_text())
    index["text_processor"] = index.pop("processor")
    (edit / "model_index.json").write_text(json.dumps(index))
    (edit / "processor").rename(edit / "text_processor")
    assert list(image_processor(edit)) == ["text_processor"]


def test_pipeline_settings_exclude_native_families(flux: Path) -> None:
    assert is_native(ModelConfig(checkpoint=str(flux)))
    assert not is_native(ModelConfig(checkpoint=str(flux), vae_tiling=True))


@pytest.mark.slow
def test_quantized_weights_have_their_types(flux: Path, tmp_path: Path, repository: Path) -> None:
    """nf4 takes a GPU."""
    packages = ["torchao==0.18.0", "gguf==0.19.0"]
    uv = str(Path(sys.executable).parent / "uv")
    subprocess.run([uv, "pip", "install", "-q", "--no-deps", "--target", str(tmp_path), *packages], check=True)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{repository}"}
    command = [sys.executable, "-c", QUANTIZED, str(flux)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=repository, check=True)
    kinds = {line.split()[0]: line.split()[1:] for line in ran.stdout.splitlines()}
    assert kinds["int8"] == ["Int8Tensor", "Parameter"]
    assert kinds["fp8"] == ["Float8Tensor", "Parameter"]
    assert kinds["gguf"] == ["GGUFParameter", "Parameter"]
