"""What profiles for GPUs promise, added up from the configurations of the published checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl_flux2 import AutoencoderKLFlux2
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel
from diffusers.models.transformers.transformer_flux2 import Flux2Transformer2DModel
from diffusers.models.transformers.transformer_flux3 import Flux3Transformer2DModel
from torch import nn
from transformers import MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM, T5Config, T5EncoderModel

from deployments.families.prompts import trim_language_model
from serve_app.config import catalog, settings
from serve_app.config.settings import Settings
from serve_app.preflight import gpu_memory
from serve_app.preflight.finding import Verdict
from serve_app.preflight.gpu_memory import look, needs

PROFILES = ("single-gpu", "gpu-24gb", "gpu-48gb", "gpu-141gb", "cluster")
BFLOAT16 = 2e-9
"""GB of a parameter."""
VISION = 0.44
"""Billions of parameters of a vision tower, which is loaded and not used."""


@pytest.fixture(autouse=True)
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory, "gpus", lambda: [80 * 2**30])


def loaded(profile: str, monkeypatch: pytest.MonkeyPatch, repository: Path) -> Settings:
    monkeypatch.chdir(repository)
    return settings.load(Path(f"configs/{profile}.yaml"))


def gigabytes(*parts: nn.Module) -> float:
    return sum(p.numel() for part in parts for p in {id(p): p for p in part.parameters()}.values()) * BFLOAT16


def language_model(kind: Any, config: Any, *, last_state: int | None = None) -> Any:
    """As the text encoders of pipelines are: without what comes after the last state that is read."""
    model = kind(config)
    if last_state is not None:
        trim_language_model(model, last_state)
    return model


def qwen3(width: int, inner: int, heads: int, *, layers: int = 36) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=151_936,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
    )


def flux2(double: int, single: int, heads: int, text: int) -> Flux2Transformer2DModel:
    return Flux2Transformer2DModel(
        num_layers=double,
        num_single_layers=single,
        num_attention_heads=heads,
        attention_head_dim=128,
        joint_attention_dim=text,
        guidance_embeds=False,
    )


def test_the_catalog_knows_the_size_of_the_published_checkpoints(repository: Path) -> None:
    """By networks without numbers (on the meta device), in their published configurations."""
    with torch.device("meta"):
        vae = gigabytes(AutoencoderKLFlux2())
        small = gigabytes(
            flux2(5, 20, 24, 7680), language_model(Qwen3ForCausalLM, qwen3(2560, 9728, 32), last_state=27)
        )
        middle = gigabytes(
            flux2(8, 24, 32, 12288), language_model(Qwen3ForCausalLM, qwen3(4096, 12288, 32), last_state=27)
        )
        mistral = MistralConfig(
            vocab_size=131_072,
            hidden_size=5120,
            intermediate_size=32_768,
            num_hidden_layers=40,
            num_attention_heads=32,
            num_key_value_heads=8,
            head_dim=128,
        )
        large = gigabytes(Flux2Transformer2DModel(), language_model(MistralForCausalLM, mistral, last_state=30))
        t5 = T5Config(
            vocab_size=32_128,
            d_model=4096,
            d_ff=10_240,
            d_kv=64,
            num_heads=64,
            num_layers=24,
            feed_forward_proj="gated-gelu",
        )
        flux1 = gigabytes(FluxTransformer2DModel(guidance_embeds=True), T5EncoderModel(t5)) + 0.125 * 2
        qwen = qwen3(2560, 9728, 32)
        flux3 = gigabytes(Flux3Transformer2DModel(), language_model(Qwen3ForCausalLM, qwen, last_state=32)) + VISION * 2
        rewriter = gigabytes(Qwen3ForCausalLM(qwen))
    known = catalog.load(Settings(catalog=repository / "configs/catalog.yaml"))
    expected = {
        "flux3-klein": flux3 + vae,
        "flux2-max": large + VISION * 2 + vae,
        "flux2-pro": middle + vae,
        "flux2-pro-snapshot": small + vae,
        "deblur": small + vae,
        "flux1-kontext": flux1 + vae,
        "flux1-fill": flux1 + vae,
        "flux1-canny": flux1 + vae,
        "flux1-dev": flux1 + vae + (0.43 + 0.06) * 2,  # SigLIP and the embedder of Redux
    }
    for name, size in expected.items():
        memory = known.models[name].memory
        assert memory is not None
        assert size <= memory.weights_gb <= size + 1, f"{name}: {size:.2f}"
    assert known.rewriter is not None
    assert known.rewriter.memory is not None
    assert rewriter <= known.rewriter.memory.weights_gb <= rewriter + 0.2


@pytest.mark.parametrize("profile", PROFILES)
def test_everything_of_a_profile_fits_its_share_of_a_gpu(
    profile: str, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    chosen = loaded(profile, monkeypatch, repository)
    known = catalog.load(chosen)
    assert [finding.verdict for finding in look(chosen, known)] == [Verdict.FINE]
    assert all(need.weights_gb and need.share for need in needs(chosen, known)), "of each it is known"


@pytest.mark.parametrize("profile", PROFILES[:-1])
def test_what_is_always_there_leaves_room_for_any_model_that_is_asked_for(
    profile: str, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    chosen = loaded(profile, monkeypatch, repository)
    on_demand = {
        f"models.{name}": model.actor.get("num_gpus", 0)
        for name, model in chosen.models.items()
        if model.enabled and model.autoscaling.min_replicas == 0 and name != "eraser"
    }
    always = sum(need.share for need in needs(chosen, catalog.load(chosen)) if need.who not in on_demand)
    assert always + max(on_demand.values()) <= 1


@pytest.mark.parametrize("profile", PROFILES)
def test_no_endpoint_is_the_checkpoint_of_a_cheaper_one(
    profile: str, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    chosen = loaded(profile, monkeypatch, repository)
    known = catalog.load(chosen)
    prices: dict[str, set[object]] = {}
    for each in known.endpoints.values():
        if each.request in ("image-klein", "gen2-max", "gen2-pro", "kontext", "pro"):
            checkpoint = chosen.model(each.model).checkpoint or known.models[each.model].checkpoint
            prices.setdefault(checkpoint, set()).add(each.price)
    assert all(len(each) == 1 for each in prices.values())


def test_the_documentation_has_the_memory_of_each_profile(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    rows: dict[str, dict[str, str]] = {}
    for profile in PROFILES:
        chosen = loaded(profile, monkeypatch, repository)
        for need in needs(chosen, catalog.load(chosen)):
            cells = rows.setdefault(f"{need.who.removeprefix('models.')} | {need.weights_gb:.1f}", {})
            cells[profile] = f"{need.total_gb:.1f} of {need.room_gb:.1f}"
    lines = [f"| GB | weights | {' | '.join(f'`{profile}`' for profile in PROFILES)} |", "|---" * 7 + "|"]
    lines += [
        f"| {row} | {' | '.join(cells.get(profile, '') for profile in PROFILES)} |" for row, cells in rows.items()
    ]
    assert "\n".join(lines) in (repository / "docs/deployment.md").read_text(), "\n".join(lines)


def test_a_model_that_does_not_fit_is_named_with_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    chosen = loaded("single-gpu", monkeypatch, repository)
    models = chosen.models | {
        "ltx2": chosen.model("ltx2").model_copy(update={"enabled": True, "actor": {"num_gpus": 0.5}})
    }
    wrong = chosen.model_copy(update={"models": models})
    [finding] = look(wrong, catalog.load(wrong))
    assert finding.verdict is Verdict.REFUSED
    assert "models.ltx2 needs 86.1 GB (75.0 of weights" in finding.told
    assert "its share of a GPU is 42.0 GB" in finding.told


def test_whoever_uses_a_gpu_has_a_share_of_one(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    chosen = loaded("single-gpu", monkeypatch, repository)
    rewriter = chosen.rewriter.model_copy(update={"device": "cuda", "actor": {}})
    [finding] = look(chosen.model_copy(update={"rewriter": rewriter}), catalog.load(chosen))
    assert finding.verdict is Verdict.REFUSED
    assert "rewriter runs on cuda, and its actor has no num_gpus" in finding.told


def test_a_machine_without_a_gpu_is_told_so(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    monkeypatch.setattr(gpu_memory, "gpus", list)
    chosen = loaded("gpu-24gb", monkeypatch, repository)
    [finding] = look(chosen, catalog.load(chosen))
    assert finding.verdict is Verdict.REFUSED
    assert "models.flux2-pro-snapshot, models.deblur need one" in finding.told
