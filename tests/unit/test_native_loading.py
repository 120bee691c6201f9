"""Checkpoints as they are found, loaded and tried."""

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
from deployments.families.flux3 import Flux3
from deployments.families.ltx2 import distilled_levels
from deployments.families.packed.batch import ATTENTIONS, PackedSequence, sdpa_loop
from deployments.families.probe import measure_step
from deployments.families.state import State
from deployments.families.step import step
from deployments.families.video_family import VideoFamily, VideoInputs
from deployments.native_loading import use_attention, use_packed_attention


@pytest.fixture(scope="module")
def loaded_family() -> Family:
    return native_loading.for_images(native_loading.load(cpu_config("bundled/flux3")).family)


@pytest.fixture
def family(loaded_family: Family) -> Iterator[Family]:
    yield loaded_family
    loaded_family.transformer.set_attention_backend("native")


def latents(family: Family) -> torch.Tensor:
    """Of an image after two steps."""
    job = make_job(steps=2, seed=5)
    [state] = family.encode([PreparedRequest(job)])
    assert isinstance(state, State)
    step(family, [state])
    step(family, [state])
    return state.x


@pytest.mark.slow
def test_a_folder_copied_elsewhere_loads_on_its_own(
    loaded_family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_bundle("flux3", tmp_path / "somewhere")
    monkeypatch.setattr(model, "BUNDLED", tmp_path / "gone")
    monkeypatch.chdir(tmp_path)
    for name in (str(copy), "somewhere/checkpoints/flux3"):
        again = native_loading.for_images(native_loading.load(cpu_config(name)).family)
        assert torch.equal(latents(again), latents(loaded_family))


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
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
    """One that doesn't exist, one whose package is missing, one that fails only when called on this device."""
    before = latents(family)
    with pytest.raises(CheckpointError, match=r"imaginary.*sage"):
        use_attention(family, ["imaginary", "sage"])
    assert torch.equal(latents(family), before)
    selection = use_attention(family, ["imaginary", "sage", "_native_cudnn", "_native_math", "native"])
    assert (set(selection.usable), selection.unusable) == (
        {"_native_math", "native"},
        ["imaginary", "sage", "_native_cudnn"],
    )


@pytest.mark.parametrize(
    ("seconds", "first"), [((2.0, 1.0), "native"), ((1.0, 2.0), "_native_math"), ((1.0, 0.99), "_native_math")]
)
def test_the_fastest_attention_is_used(
    family: Family, monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, float], first: str
) -> None:
    """Of two that are about as fast, the first that was named."""
    times = iter(seconds)
    monkeypatch.setattr(native_loading, "measure_step", lambda *_, **__: next(times))
    assert use_attention(family, ["_native_math", "native"]).usable[0] == first


@pytest.mark.parametrize(
    ("graph_breaks", "outcome"), [((), "native"), (("native",), "_native_math"), (("native", "_native_math"), None)]
)
def test_a_model_that_can_not_be_compiled_runs_without(
    family: Family, monkeypatch: pytest.MonkeyPatch, graph_breaks: tuple[str, ...], outcome: str | None
) -> None:
    """With the first attention backend that can, or without compilation. By a fake: compilers take a minute."""
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
    """One that is unknown, those that need a GPU or a package, one in which images see each other."""
    seeing = {
        **ATTENTIONS,
        "all_as_one": lambda q, k, v, packed: sdpa_loop(q, k, v, PackedSequence([q.shape[1]], q.device)),
    }
    monkeypatch.setattr(native_loading, "ATTENTIONS", seeing)
    names = ["imaginary", "varlen", "xformers", "flash", "all_as_one", "sdpa_loop"]
    assert use_packed_attention(family, names).usable == ["sdpa_loop"]
    with pytest.raises(CheckpointError, match=r"all_as_one"):
        use_packed_attention(family, ["all_as_one"])


def test_rows_are_tried_with_an_image_without_references(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel may refuse segments of no length, or fill them with whatever is there."""
    rows = list[list[int]]()

    def record_lengths(q: Tensor, k: Tensor, v: Tensor, packed: PackedSequence) -> Tensor:
        rows.append(packed.lengths)
        return sdpa_loop(q, k, v, packed)

    monkeypatch.setattr(native_loading, "ATTENTIONS", {**ATTENTIONS, "noted": record_lengths})
    use_packed_attention(family, ["noted"])
    family.use_packed_attention(sdpa_loop)
    assert any(0 in lengths and max(lengths) > 0 for lengths in rows)


def test_what_was_chosen_is_told_with_its_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native_loading.load(cpu_config("bundled/flux3")).setup == {
        "family": "Flux3",
        "device": f"{torch.cpu.get_capabilities()['cpu_name']}, {torch.get_num_threads()} threads",
        "dtype": "float32",
        "dtype_because": "as configured",
        "attention": "native",
        "compiled": "false",
        "packed_attention": "sdpa_loop",
    }
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    without_halves = native_loading.load(ModelConfig(checkpoint="bundled/flux3", device="cpu")).setup
    assert without_halves["dtype"] == "float32"
    assert "no bfloat16" in without_halves["dtype_because"]


@pytest.mark.parametrize(("fraction", "dtype"), [(0.5, "bfloat16"), (0.9, "float32")])
def test_a_processor_with_halves_uses_them_where_a_step_is_much_faster_so(
    fraction: float, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(family: Family) -> float:
        return fraction if family.transformer.dtype == torch.bfloat16 else 1.0

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    monkeypatch.setattr(native_loading, "measure_step", measure)
    setup = native_loading.load(ModelConfig(checkpoint="bundled/flux3", device="cpu")).setup
    assert setup["dtype"] == dtype
    assert not any(character.isdigit() for character in setup["dtype_because"]), "it names a series of figures"


@pytest.mark.slow
def test_a_processor_whose_halves_do_not_do_serves_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(family: Family) -> float:
        if family.transformer.dtype == torch.bfloat16:
            raise RuntimeError('"gelu_cpu" not implemented for BFloat16')
        return 1.0

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    monkeypatch.setattr(native_loading, "measure_step", measure)
    assert native_loading.load(ModelConfig(checkpoint="bundled/flux3", device="cpu")).setup["dtype"] == "float32"


@pytest.mark.parametrize("name", ["bundled/flux3", "bundled/ltx2"])
def test_the_time_of_a_step_can_be_measured(name: str) -> None:
    assert measure_step(native_loading.load(cpu_config(name, render_side=64)).family) > 0


def test_a_device_that_has_room_for_one_image_at_a_time_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def small(family: Family, side: int, count: int) -> None:
        if count > 1:
            raise OutOfMemory

    monkeypatch.setattr(native_loading, "warm_up", small)
    with caplog.at_level(logging.WARNING, logger=native_loading.__name__):
        native_loading.load(cpu_config("bundled/flux3"))
    assert "2 images of 64 pixels" in caplog.text


@pytest.mark.parametrize(
    ("error", "message"), [(NotFinite("nothing finite"), "nothing finite"), (OutOfMemory(), "OutOfMemory")]
)
def test_a_model_that_can_finish_no_image_is_refused(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Flux3, state: State) -> None:
        raise error

    monkeypatch.setattr(Flux3, "finish", broken)
    with pytest.raises(CheckpointError, match=message):
        native_loading.load(ModelConfig(checkpoint="bundled/flux3", device="cpu"))


def test_bfloat16_runs_with_latents_in_full_precision(loaded_family: Family) -> None:
    half = native_loading.for_images(
        native_loading.load(ModelConfig(checkpoint="bundled/flux3", device="cpu", dtype="bfloat16")).family
    )
    assert half.transformer.dtype == torch.bfloat16
    x = latents(half)
    assert x.dtype == torch.float32
    assert (x - latents(loaded_family)).abs().mean() < 0.05


@pytest.fixture(scope="module")
def video_family() -> VideoFamily:
    family = native_loading.load(cpu_config("bundled/ltx2", render_side=96, distilled=True, enhance_noise=0.5)).family
    assert isinstance(family, VideoFamily)
    return family


def a_video(draft: str | None = None, **fields: Any) -> GenerationJob:
    return make_video_job(width=1280, height=704, steps=8, seed=5, draft=draft, video={"frames": 9, **fields})


def test_videos_are_made_as_they_are_asked_for(video_family: VideoFamily) -> None:
    state = video_family.encode(a_video(), VideoInputs())
    assert min(state.shape.canvas.size) <= 96
    assert state.sigmas.tolist() == distilled_levels(8).tolist()
    draft = video_family.draft(state)
    assert float(video_family.encode(a_video(draft="d"), VideoInputs(draft=draft)).sigmas[0]) == pytest.approx(0.5)


def test_a_model_of_videos_is_none_of_images(loaded_family: Family, video_family: VideoFamily) -> None:
    assert native_loading.for_images(loaded_family) is loaded_family
    with pytest.raises(CheckpointError, match="videos, not images"):
        native_loading.for_images(video_family)


def test_attention_is_tried_with_a_tiny_video(video_family: VideoFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        assert set(use_attention(video_family, ["imaginary", "_native_math", "native"]).usable) == {
            "_native_math",
            "native",
        }
    finally:
        video_family.transformer.set_attention_backend("native")
    monkeypatch.setattr(video_family, "probe", lambda: torch.tensor([1.0, torch.nan]))
    with pytest.raises(CheckpointError, match="not finite"):
        use_attention(video_family, ["native"])


def test_videos_in_bfloat16_have_latents_in_full_precision() -> None:
    half = native_loading.load(
        ModelConfig(checkpoint="bundled/ltx2", device="cpu", dtype="bfloat16", render_side=64)
    ).family
    assert isinstance(half, VideoFamily)
    assert half.transformer.dtype == torch.bfloat16
    state = half.encode(a_video(), VideoInputs(lead=np.zeros((9, 64, 64, 3), np.uint8)))
    half.step(state)
    for stream in (state.video, state.audio):
        assert stream.x.dtype == torch.float32
        assert torch.isfinite(stream.x).all()
    assert len(next(half.frames(state))) == 9
    assert half.decode_audio(state).samples.dtype == np.float32


@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_compiled_meets_two_numbers_of_tokens(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    """One alone may be taken for a number of channels, and compiled as that."""
    alone: set[int] = set()

    def record_warm_up(family: Family, side: int, count: int, *, height: int | None = None) -> None:
        if count == 1:
            alone.add(side * (height or side))

    monkeypatch.setattr(native_loading, "warm_up", record_warm_up)
    native_loading._warm_up(cast(Family, object()), 1024, vary_size=compiled)
    assert len(alone) == (2 if compiled else 1)


def test_a_name_is_that_of_a_bundled_checkpoint_or_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_fingerprint_of_weights_is_that_of_their_content(tmp_path: Path) -> None:
    def write_weights(name: str, weights: torch.Tensor) -> Path:
        (tmp_path / name / "text_encoder").mkdir(parents=True)
        save_file({"w": weights}, tmp_path / name / "text_encoder" / "model.safetensors")
        return tmp_path / name

    random = torch.rand(50_000)
    other = random.clone()
    other[:25_000] += 0.5  # as a training would: everywhere in what it touches
    same = [fingerprint(write_weights(name, random), ["text_encoder"]) for name in ("one", "again")]
    assert same[0] == same[1]
    assert fingerprint(write_weights("other", other), ["text_encoder"]) != same[0]
    assert fingerprint(write_weights("longer", torch.cat([random, random[:9]])), ["text_encoder"]) != same[0]
