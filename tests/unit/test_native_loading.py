"""Checkpoints of native families: search, loading, and probes."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.bundle import copy_bundle, cpu_config
from support.jobs import make_job, make_video_job
from torch import Tensor

from deployments import native_loading
from deployments.backend import NotFinite, OutOfMemory
from deployments.checkpoint_files import CheckpointError, fingerprint, local_folder, pipeline_folder
from deployments.contract import model
from deployments.contract.job import GenerationJob
from deployments.contract.model import BUNDLED, ModelConfig
from deployments.families.conditioning import PreparedRequest
from deployments.families.family import Family
from deployments.families.ltx2 import distilled_levels
from deployments.families.packed.batch import ATTENTIONS, PackedSequence, sdpa_loop
from deployments.families.probe import measure_step
from deployments.families.state import State
from deployments.families.step import step
from deployments.families.video_family import VideoFamily, VideoInputs
from deployments.native_loading import LoadedModel, use_attention, use_packed_attention


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return native_loading.load(cpu_config("bundled/flux3"))


@pytest.fixture(scope="module")
def loaded_family(loaded: LoadedModel) -> Family:
    return native_loading.for_images(loaded.family)


@pytest.fixture
def family(loaded_family: Family) -> Iterator[Family]:
    yield loaded_family
    loaded_family.transformer.set_attention_backend("native")


@pytest.fixture(scope="module")
def video_family() -> VideoFamily:
    family = native_loading.load(cpu_config("bundled/ltx2", render_side=96, distilled=True, enhance_noise=0.5)).family
    assert isinstance(family, VideoFamily)
    return family


def latents(family: Family) -> torch.Tensor:
    """Returns the latents of an image after two steps."""
    [state] = family.encode([PreparedRequest(make_job(steps=2, seed=5))])
    assert isinstance(state, State)
    for _ in range(2):
        step(family, [state])
    return state.x


@pytest.mark.slow
def test_copied_checkpoint_needs_nothing_else(
    loaded_family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_bundle("flux3", tmp_path / "somewhere")
    monkeypatch.setattr(model, "BUNDLED", tmp_path / "gone")
    monkeypatch.chdir(tmp_path)
    for name in (str(copy), "somewhere/checkpoints/flux3"):
        again = native_loading.for_images(native_loading.load(cpu_config(name)).family)
        assert torch.equal(latents(again), latents(loaded_family))


def test_folder_without_a_whole_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint"):
        native_loading.load(ModelConfig(checkpoint=str(tmp_path)))
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "OtherPipeline"}))
    with pytest.raises(CheckpointError, match="OtherPipeline"):
        native_loading.load(ModelConfig(checkpoint=str(tmp_path)))
    folder = copy_bundle("flux", tmp_path)
    shutil.rmtree(tmp_path / "autoencoders" / "flux1")
    with pytest.raises(CheckpointError, match="autoencoders/flux1"):
        native_loading.load(ModelConfig(checkpoint=str(folder)))


def test_unusable_attention_backends_are_skipped(family: Family) -> None:
    """One does not exist, one lacks its package, and one fails only when called on this device."""
    before = latents(family)
    with pytest.raises(CheckpointError, match=r"imaginary.*sage"):
        use_attention(family, ["imaginary", "sage"])
    assert torch.equal(latents(family), before)
    selection = use_attention(family, ["imaginary", "sage", "_native_cudnn", "_native_math", "native"])
    assert set(selection.usable) == {"_native_math", "native"}
    assert selection.unusable == ["imaginary", "sage", "_native_cudnn"]


def test_nan_steps_fail_the_attention_probe(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    projection = family.transformer.proj_out
    forward = projection.forward
    monkeypatch.setattr(projection, "forward", lambda x: forward(x) * torch.nan)
    with pytest.raises(CheckpointError, match="not finite"):
        use_attention(family, ["native"])


@pytest.mark.parametrize(
    ("seconds", "first"), [((2.0, 1.0), "native"), ((1.0, 2.0), "_native_math"), ((1.0, 0.99), "_native_math")]
)
def test_fastest_attention_is_used(
    family: Family, monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, float], first: str
) -> None:
    """Two that are about as fast keep their order."""
    times = iter(seconds)
    monkeypatch.setattr(native_loading, "measure_step", lambda *_, **__: next(times))
    assert use_attention(family, ["_native_math", "native"]).usable[0] == first


@pytest.mark.parametrize(
    ("graph_breaks", "outcome"), [((), "native"), (("native",), "_native_math"), (("native", "_native_math"), None)]
)
def test_uncompilable_model_tries_other_attentions_or_runs_uncompiled(
    family: Family, monkeypatch: pytest.MonkeyPatch, graph_breaks: tuple[str, ...], outcome: str | None
) -> None:
    """A fake replaces the compiler, which takes a minute."""
    transformer, before = family.transformer, latents(family)
    used = list[str]()
    monkeypatch.setattr(transformer, "set_attention_backend", used.append)

    def compile_repeated_blocks(**_: object) -> None:
        def broken(*_: object, **__: object) -> None:
            raise RuntimeError("graph break")

        if used[-1] in graph_breaks:
            transformer.single_transformer_blocks[0]._compiled_call_impl = broken

    monkeypatch.setattr(transformer, "compile_repeated_blocks", compile_repeated_blocks)
    assert native_loading.compile_blocks(family, ["native", "_native_math"]) == outcome
    assert used[-1] == (outcome or "native")
    assert torch.equal(latents(family), before)


def test_unusable_attention_of_packed_images_is_skipped(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is unknown, some need a GPU or a package, and in one images see each other."""

    def all_as_one(q: Tensor, k: Tensor, v: Tensor, packed: PackedSequence) -> Tensor:
        return sdpa_loop(q, k, v, PackedSequence([q.shape[1]], q.device))

    monkeypatch.setattr(native_loading, "ATTENTIONS", {**ATTENTIONS, "all_as_one": all_as_one})
    names = ["imaginary", "varlen", "xformers", "flash", "all_as_one", "sdpa_loop"]
    assert use_packed_attention(family, names).usable == ["sdpa_loop"]
    with pytest.raises(CheckpointError, match=r"all_as_one"):
        use_packed_attention(family, ["all_as_one"])


def test_packed_attention_is_tried_with_empty_segments(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel may refuse segments of no length, or fill them with garbage."""
    rows = list[list[int]]()

    def record_lengths(q: Tensor, k: Tensor, v: Tensor, packed: PackedSequence) -> Tensor:
        rows.append(packed.lengths)
        return sdpa_loop(q, k, v, packed)

    monkeypatch.setattr(native_loading, "ATTENTIONS", {**ATTENTIONS, "recording": record_lengths})
    use_packed_attention(family, ["recording"])
    family.use_packed_attention(sdpa_loop)
    assert any(0 in lengths and max(lengths) > 0 for lengths in rows)


def test_setup_names_the_choices_and_reasons(loaded: LoadedModel) -> None:
    assert loaded.setup == {
        "family": "Flux3",
        "device": f"{torch.cpu.get_capabilities()['cpu_name']}, {torch.get_num_threads()} threads",
        "dtype": "float32",
        "dtype_because": "as configured",
        "attention": "native",
        "compiled": "false",
        "packed_attention": "sdpa_loop",
    }


@pytest.mark.parametrize(
    ("capabilities", "seconds", "dtype", "reason"),
    [
        ({}, 0.0, torch.float32, "the processor has no bfloat16"),
        ({"amx_bf16": True}, 0.8, torch.bfloat16, "a step is much faster so"),
        ({"bf16": True}, 0.81, torch.float32, "half precision is hardly faster"),
        ({"avx512_bf16": True}, None, torch.float32, "the processor's bfloat16 does not do"),
    ],
)
def test_bfloat16_is_used_where_it_is_much_faster(
    capabilities: Any, seconds: float | None, dtype: torch.dtype, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(family: Any) -> float:
        if family == torch.float32:
            return 1.0
        if seconds is None:
            raise RuntimeError('"gelu_cpu" not implemented for BFloat16')
        return seconds

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    monkeypatch.setattr(native_loading, "measure_step", measure)
    load = cast(Any, lambda dtype: dtype)  # the type stands for a family
    assert native_loading._choose_precision("auto", torch.device("cpu"), load)[:2] == (dtype, reason)


def test_step_time_is_measured(family: Family, video_family: VideoFamily) -> None:
    assert measure_step(family) > 0
    assert measure_step(video_family) > 0


def test_device_with_room_for_one_image_serves(
    family: Family, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def small(family: Family, side: int, count: int) -> None:
        if count > 1:
            raise OutOfMemory

    monkeypatch.setattr(native_loading, "warm_up", small)
    with caplog.at_level(logging.WARNING, logger=native_loading.__name__):
        native_loading._warm_up(family, 64, vary_size=False)
    assert "2 images of 64 pixels" in caplog.text


@pytest.mark.parametrize(
    ("error", "message"), [(NotFinite("nothing finite"), "nothing finite"), (OutOfMemory(), "OutOfMemory")]
)
def test_model_that_can_finish_no_image_is_refused(
    error: Exception, message: str, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(state: State) -> None:
        raise error

    monkeypatch.setattr(family, "finish", broken)
    with pytest.raises(CheckpointError, match=message):
        native_loading._warm_up(family, 64, vary_size=False)


def test_bfloat16_images_have_latents_in_float32(loaded_family: Family) -> None:
    half = native_loading.for_images(native_loading.load(cpu_config("bundled/flux3", dtype="bfloat16")).family)
    assert half.transformer.dtype == torch.bfloat16
    x = latents(half)
    assert x.dtype == torch.float32
    assert (x - latents(loaded_family)).abs().mean() < 0.05


def make_video(draft: str | None = None, **fields: Any) -> GenerationJob:
    return make_video_job(width=1280, height=704, steps=8, seed=5, draft=draft, video={"frames": 9, **fields})


def test_video_settings_reach_the_family(video_family: VideoFamily) -> None:
    state = video_family.encode(make_video(), VideoInputs())
    assert min(state.shape.canvas.size) <= 96
    assert state.sigmas.tolist() == distilled_levels(8).tolist()
    draft = video_family.draft(state)
    assert float(video_family.encode(make_video(draft="d"), VideoInputs(draft=draft)).sigmas[0]) == pytest.approx(0.5)


def test_video_model_makes_no_images(loaded_family: Family, video_family: VideoFamily) -> None:
    assert native_loading.for_images(loaded_family) is loaded_family
    with pytest.raises(CheckpointError, match="videos, not images"):
        native_loading.for_images(video_family)


def test_attention_is_tried_with_a_tiny_video(video_family: VideoFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    usable = use_attention(video_family, ["imaginary", "_native_math", "native"]).usable
    video_family.transformer.set_attention_backend("native")
    assert set(usable) == {"_native_math", "native"}
    monkeypatch.setattr(video_family, "probe", lambda: torch.tensor([1.0, torch.nan]))
    with pytest.raises(CheckpointError, match="not finite"):
        use_attention(video_family, ["native"])


def test_bfloat16_videos_have_latents_in_float32() -> None:
    half = native_loading.load(cpu_config("bundled/ltx2", dtype="bfloat16", render_side=64)).family
    assert isinstance(half, VideoFamily)
    assert half.transformer.dtype == torch.bfloat16
    state = half.encode(make_video(), VideoInputs(lead=np.zeros((9, 64, 64, 3), np.uint8)))
    half.step(state)
    for stream in (state.video, state.audio):
        assert stream.x.dtype == torch.float32
        assert torch.isfinite(stream.x).all()
    assert len(next(half.frames(state))) == 9
    assert half.decode_audio(state).samples.dtype == np.float32


@pytest.mark.parametrize("compiled", [False, True])
def test_compiled_model_is_warmed_up_with_two_sizes(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    """The first number of tokens may equal that of channels, and be compiled as such."""
    alone: set[int] = set()

    def record_warm_up(family: Family, side: int, count: int, *, height: int | None = None) -> None:
        if count == 1:
            alone.add(side * (height or side))

    monkeypatch.setattr(native_loading, "warm_up", record_warm_up)
    native_loading._warm_up(cast(Family, object()), 1024, vary_size=compiled)
    assert len(alone) == (2 if compiled else 1)


def test_checkpoint_is_a_bundled_name_or_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_folder("bundled/flux3") == BUNDLED / "flux3"
    assert pipeline_folder("bundled/flux3") == (BUNDLED / "flux3", True)
    with pytest.raises(CheckpointError, match="bundled/flux3"):
        pipeline_folder("bundled/nothing")
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert local_folder("mine") == tmp_path / "mine"
    assert pipeline_folder(str(tmp_path / "mine")) == (tmp_path / "mine", True)
    for name in ("no such name", "no/such/name"):
        with pytest.raises(CheckpointError, match="no folder here"):
            pipeline_folder(name)


def test_fingerprint_follows_the_weights(tmp_path: Path) -> None:
    def write_weights(name: str, weights: torch.Tensor) -> Path:
        (tmp_path / name / "text_encoder").mkdir(parents=True)
        save_file({"w": weights}, tmp_path / name / "text_encoder" / "model.safetensors")
        return tmp_path / name

    random = torch.rand(50_000)
    other = random.clone()
    other[:25_000] += 0.5  # training changes all of the tensors that it touches
    same = [fingerprint(write_weights(name, random), ["text_encoder"]) for name in ("one", "again")]
    assert same[0] == same[1]
    assert fingerprint(write_weights("other", other), ["text_encoder"]) != same[0]
    assert fingerprint(write_weights("longer", torch.cat([random, random[:9]])), ["text_encoder"]) != same[0]
