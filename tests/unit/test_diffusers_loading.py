"""Loading options of diffusers' pipelines, on a tiny checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel
from support.tiny_pipelines import build

from deployments.backends.diffusers import denoisers_of
from deployments.checkpoint_files import CheckpointError
from deployments.contract.model import CfgConfig, ModelConfig, Quantization, StepCache
from deployments.diffusers_loading import load_pipeline
from deployments.native_loading import is_native

pytestmark = pytest.mark.filterwarnings("ignore")  # pipelines warn of what they themselves call
# What replicas do with packages that only some of them have.
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
for method, file in (("int8", None), ("fp8", None), ("gguf", str(folder / "transformer.gguf"))):
    quantization = Quantization(method=method, file=file)
    config = ModelConfig(checkpoint=str(folder), device="cpu", dtype="bfloat16", quantization=quantization)
    pipeline = load_pipeline(config).pipeline
    print(method, *sorted({type(each).__name__ for each in pipeline.transformer.parameters()}))
"""


@pytest.fixture(scope="module")
def flux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("flux-schnell", tmp_path_factory.mktemp("loading") / "flux")


def test_attention_that_is_missing_is_passed_over(flux: Path) -> None:
    loaded = load_pipeline(ModelConfig(checkpoint=str(flux), device="cpu", attention=("flash", "native")))
    assert loaded.setup["attention"] == "native"
    assert loaded.interleaves
    with pytest.raises(CheckpointError, match=r"makes nothing here: flash \("):
        load_pipeline(ModelConfig(checkpoint=str(flux), device="cpu", attention=("flash",)))


def test_a_model_that_cannot_be_compiled_runs_as_it_is(flux: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(FluxTransformer2DModel, "compile_repeated_blocks", refuse)
    assert load_pipeline(ModelConfig(checkpoint=str(flux), device="cpu", compile=True)).setup["compiled"] == "failed"


def test_a_step_cache_is_used_by_one_call_at_a_time(flux: Path) -> None:
    cache = StepCache(method="first_block", options={"threshold": 0.1})
    loaded = load_pipeline(ModelConfig(checkpoint=str(flux), device="cpu", cache=cache))
    [transformer] = denoisers_of(loaded.pipeline)
    assert getattr(transformer, "is_cache_enabled")  # noqa: B009 - of diffusers' mixin
    assert not loaded.interleaves
    wrong = StepCache(method="first_block", options={"treshold": 0.1})
    with pytest.raises(CheckpointError, match=r"cache\.options"):
        load_pipeline(ModelConfig(checkpoint=str(flux), device="cpu", cache=wrong))


def test_what_the_checkpoint_does_not_have_is_named(flux: Path, tmp_path: Path) -> None:
    quantization = Quantization(method="int8", parts=("unet",))
    with pytest.raises(CheckpointError, match=r"quantization\.parts: .* has no unet"):
        load_pipeline(ModelConfig(checkpoint=str(flux), device="cpu", quantization=quantization))
    with pytest.raises(CheckpointError, match="NoPipeline is no pipeline of diffusers"):
        load_pipeline(ModelConfig(checkpoint=str(flux), device="cpu", pipeline="NoPipeline"))


def test_settings_of_native_families_are_not_ignored(flux: Path) -> None:
    with pytest.raises(CheckpointError, match="render_side, cfg: only native families have these"):
        load_pipeline(ModelConfig(checkpoint=str(flux), device="cpu", render_side=64, cfg=CfgConfig(scale=2)))


def test_a_native_family_gives_way_to_settings_of_pipelines(flux: Path) -> None:
    assert is_native(ModelConfig(checkpoint=str(flux)))
    assert not is_native(ModelConfig(checkpoint=str(flux), vae_tiling=True))


@pytest.mark.slow
def test_weights_come_in_fewer_bits(flux: Path, tmp_path: Path, repository: Path) -> None:
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
