"""Files of a pipeline that are loaded, by the names in a repository, and checkpoints that can't be loaded."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.tiny_pipelines import build

from deployments.contract.checkpoint_layout import WeightsChoice, choose_files, find_variant
from deployments.contract.hub_files import CheckpointKind
from deployments.contract.model import ModelConfig
from serve_app.cluster.checkpoints import RequiredCheckpoint
from serve_app.cluster.checks import weights as weight_checks
from serve_app.cluster.checks.result import Verdict
from serve_app.cluster.checks.weights import check_weights

INDEX = {
    "_class_name": "StableDiffusionXLPipeline",
    "unet": ["diffusers", "UNet2DConditionModel"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "image_encoder": [None, None],
}
UNET, TEXT = "unet/diffusion_pytorch_model", "text_encoder/model"
CONFIGS = {"model_index.json", "unet/config.json", "text_encoder/config.json", "tokenizer/vocab.json"}
OTHERS = {
    *("README.md", "sd_xl_base.safetensors", "unet/model.onnx", "unet/model.onnx_data", "unet/openvino_model.bin"),
    *("unet/openvino_model.xml", "text_encoder/flax_model.msgpack", "vae_1_0/diffusion_pytorch_model.safetensors"),
    *("unet/original/model.safetensors", "image_encoder/model.safetensors"),
}


def weights(*names: str) -> set[str]:
    """Returns the loaded files with weights."""
    return set(choose_files([*CONFIGS, *OTHERS, *names], INDEX, WeightsChoice())) - CONFIGS


def test_plain_safetensors_exclude_other_formats() -> None:
    plain = {f"{UNET}.safetensors", f"{TEXT}.safetensors"}
    others = {f"{UNET}{ending}" for ending in (".bin", ".fp16.safetensors", ".non_ema.safetensors")}
    assert set(choose_files([*CONFIGS, *plain, *others], INDEX, WeightsChoice())) == plain | CONFIGS


def test_pickles_are_loaded_only_without_safetensors() -> None:
    pickles = {f"{UNET}.bin", "text_encoder/pytorch_model.bin"}
    assert weights(*pickles) == pickles
    assert weights(*pickles, f"{UNET}.safetensors") == {f"{UNET}.safetensors", "text_encoder/pytorch_model.bin"}


def test_shards_are_loaded_with_their_index() -> None:
    shards = {f"{UNET}-0000{i}-of-00002.safetensors" for i in (1, 2)} | {f"{UNET}.safetensors.index.json"}
    half = {f"{UNET}.fp16-0000{i}-of-00002.safetensors" for i in (1, 2)} | {f"{UNET}.safetensors.index.fp16.json"}
    assert weights(*shards, *half) == shards
    assert weights(*half) == half


def test_replaced_components_need_no_weights() -> None:
    names = [*CONFIGS, f"{UNET}.safetensors", f"{TEXT}.safetensors"]
    assert set(choose_files(names, INDEX, WeightsChoice(replaced=("unet",)))) == CONFIGS | {f"{TEXT}.safetensors"}


@pytest.mark.parametrize(
    ("unet", "text_encoder", "precision", "variant"),
    [
        ("", "", "float16", None),
        ("fp16", "fp16", "bfloat16", "fp16"),
        ("fp16", "", "auto", "fp16"),
        (" fp16", " fp16", "auto", None),
        (" fp16", " fp16", "float16", "fp16"),
        (" fp16", "", "float16", "fp16"),
        (" bf16 fp16", " fp16", "bfloat16", "bf16"),
        ("fp16 bf16", "bf16", "auto", "bf16"),
        ("ema", "", "auto", "ema"),
    ],
)
def test_variant_is_one_that_all_components_have(
    unet: str, text_encoder: str, precision: str, variant: str | None
) -> None:
    names = [f"{UNET}.{each}.safetensors".replace("..", ".") for each in unet.split(" ")]
    names += [f"{TEXT}.{each}.safetensors".replace("..", ".") for each in text_encoder.split(" ")]
    assert find_variant(names, INDEX, WeightsChoice(precision)) == variant


def refusals(checkpoint: Path, **fields: Any) -> list[str]:
    [result] = check_weights([RequiredCheckpoint("model", str(checkpoint), **fields)])
    assert (result.verdict is Verdict.FINE) == (result.message == "all here")
    return [] if result.verdict is Verdict.FINE else [result.message.removeprefix(f"model: {checkpoint}: ")]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdxl", tmp_path_factory.mktemp("built"))


@pytest.fixture
def sdxl(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "sdxl"))


def test_checkpoint_without_an_index_is_refused(sdxl: Path, tmp_path: Path) -> None:
    assert refusals(sdxl) == []
    (sdxl / "model_index.json").write_text("[]")
    assert refusals(sdxl) == ["it has no readable model_index.json"]
    nowhere = tmp_path / "nowhere.safetensors"
    assert refusals(nowhere) == [f"model: {nowhere} can't be read: there is no such file or folder"]


def test_components_without_weights_are_refused(sdxl: Path) -> None:
    [file] = (sdxl / "unet").glob("*.safetensors")
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    assert refusals(sdxl) == [f"only a part of {file.name} is here"]
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert refusals(sdxl) == [f"{file.name} is not in the format safetensors"]
    file.rename(file.with_name("diffusion_pytorch_model-00001-of-00002.safetensors"))
    assert refusals(sdxl) == ["unet has 1 of 2 files of weights"]
    next((sdxl / "unet").glob("*.safetensors")).unlink()
    assert refusals(sdxl) == ["unet has no weights"]
    assert refusals(sdxl, weights=WeightsChoice(replaced=("unet",))) == []
    (sdxl / "tokenizer").rename(sdxl / "other")
    assert refusals(sdxl) == ["the folder of its tokenizer is missing"]


def test_single_file_must_hold_safetensors(tmp_path: Path) -> None:
    file = tmp_path / "mine.safetensors"
    file.write_bytes(b"not at all")
    problem = "mine.safetensors is not in the format safetensors"
    assert refusals(file, kind=CheckpointKind.NETWORK) == [problem]
    file.write_bytes((2).to_bytes(8, "little") + b"{}")
    assert refusals(file, kind=CheckpointKind.NETWORK) == []
    pickle = file.rename(tmp_path / "mine.ckpt")
    assert refusals(pickle) == ["mine.ckpt is no .safetensors file"]


def test_single_file_without_configuration_is_refused_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.safetensors"
    file.write_bytes((2).to_bytes(8, "little") + b"{}")
    monkeypatch.setattr(weight_checks, "HF_HUB_OFFLINE", False)
    assert refusals(file, kind=CheckpointKind.NETWORK, infers_configs=True) == []
    monkeypatch.setattr(weight_checks, "HF_HUB_OFFLINE", True)
    [message] = refusals(file, kind=CheckpointKind.NETWORK, infers_configs=True)
    assert "HF_HUB_OFFLINE is set" in message
    assert refusals(file, kind=CheckpointKind.NETWORK) == []


def test_bundled_checkpoints_are_whole() -> None:
    for name in ("flux", "flux2klein", "flux3", "ltx2", "kontext", "flux/redux"):
        checkpoint = RequiredCheckpoint("model", f"bundled/{name}", weights=ModelConfig(dtype="float16").weights)
        assert [result.message for result in check_weights([checkpoint])] == ["all here"]
