from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pytest
import safetensors.torch
import torch
from support.jobs import make_job
from torch import Tensor

from deployments import checkpoints
from deployments.adapters.cache import AdapterCache
from deployments.adapters.weights import AdapterError, read_weights
from deployments.backends.diffusion import DiffusionBackend
from deployments.contract.job import Adapter, GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.engine.backend import JobError
from deployments.families.family import Family
from deployments.families.state import State

JOB = make_job(steps=2, seed=5)


@pytest.fixture(scope="module")
def family() -> Family:
    return checkpoints.for_pictures(checkpoints.load("bundled/flux3", device="cpu"))


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore("memory:///")


def layer_names(family: Family, n: int = 3) -> list[str]:
    modules = family.transformer.named_modules()
    return [name for name, module in modules if name.endswith("attn.to_q")][:n]


def matrices(family: Family, seed: int = 0, rank: int = 2) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    found: dict[str, Tensor] = {}
    for name in layer_names(family):
        linear = family.transformer.get_submodule(name)
        found[f"transformer.{name}.lora_A.weight"] = torch.randn(rank, linear.in_features, generator=draw)
        found[f"transformer.{name}.lora_B.weight"] = torch.randn(linear.out_features, rank, generator=draw)
    return found


def file(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    return safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata)


def test_a_file_is_read_whole(family: Family) -> None:
    weights = read_weights(file(matrices(family)), family.transformer)
    assert list(weights.layers) == sorted(layer_names(family))
    assert weights.rank == 2
    assert {layer.scale for layer in weights.layers.values()} == {1.0}


def test_alpha_is_taken_from_the_header(family: Family) -> None:
    metadata = {"lora_adapter_metadata": json.dumps({"transformer.r": 2, "transformer.lora_alpha": 4})}
    weights = read_weights(file(matrices(family), metadata), family.transformer)
    assert {layer.scale for layer in weights.layers.values()} == {2.0}


def test_names_and_shapes_are_checked_without_weights(family: Family) -> None:
    with torch.device("meta"):
        bare = type(family.transformer).from_config(family.transformer.config)
    assert len(read_weights(file(matrices(family)), bare).layers) == 3


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pickle.dumps({"transformer.x.lora_A.weight": 1}), "not a safetensors file"),
        (b"", "not a safetensors file"),
        (file({}), "holds no matrices"),
        (file({"transformer.norm.weight": torch.zeros(3)}), "not a LoRA"),
        (file({"transformer.none.lora_A.weight": torch.zeros(2, 3)}), "no linear layer none"),
    ],
)
def test_what_is_no_adapter_of_the_base_is_refused(family: Family, data: bytes, reason: str) -> None:
    with pytest.raises(AdapterError, match=reason):
        read_weights(data, family.transformer)


def test_a_half_and_a_misfit_are_named(family: Family) -> None:
    good = matrices(family)
    first = layer_names(family)[0]
    half = {name: tensor for name, tensor in good.items() if name != f"transformer.{first}.lora_B.weight"}
    with pytest.raises(AdapterError, match=f"half of {first}"):
        read_weights(file(half), family.transformer)
    misfit = good | {f"transformer.{first}.lora_A.weight": torch.zeros(2, 7)}
    with pytest.raises(AdapterError, match="but the base's layer"):
        read_weights(file(misfit), family.transformer)


def test_the_one_unused_for_longest_leaves_the_cache(family: Family, store: ObjectStore) -> None:
    for name in "abc":
        store.put_blocking(f"finetunes/{name}", file(matrices(family)), "application/octet-stream")
    cache = AdapterCache(family.transformer, store, max_resident=2)
    first = cache.get(Adapter("a", "finetunes/a", 1.0))
    cache.get(Adapter("b", "finetunes/b", 1.0))
    assert cache.get(Adapter("a", "finetunes/a", 0.5)) is first
    cache.get(Adapter("c", "finetunes/c", 1.0))
    assert cache.resident == ["a", "c"]
    with pytest.raises(JobError, match="no longer available"):
        cache.get(Adapter("d", "finetunes/d", 1.0))


def pictures(backend: DiffusionBackend, jobs: list[GenerationJob]) -> list[Tensor]:
    states = backend.encode(jobs)
    assert all(isinstance(state, State) for state in states)
    ready = [state for state in states if isinstance(state, State)]
    for _ in range(JOB.steps):
        backend.step(ready)
    return [state.x.clone() for state in ready]


def test_requests_with_different_adapters_share_a_batch(family: Family, store: ObjectStore) -> None:
    for seed, name in enumerate("ab"):
        store.put_blocking(f"finetunes/{name}", file(matrices(family, seed)), "application/octet-stream")
    backend = DiffusionBackend(family, store)
    a, b = (Adapter(name, f"finetunes/{name}", 0.5) for name in "ab")
    jobs = [
        replace(JOB, adapter=adapter) for adapter in (None, a, b, replace(a, strength=1.5), replace(a, strength=0.0))
    ]
    together = pictures(backend, jobs)
    alone = [pictures(backend, [job])[0] for job in jobs]
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)
    assert torch.equal(alone[0], alone[4]), "strength 0 is the base, bit by bit"
    for changed in alone[1:4]:
        assert not torch.allclose(alone[0], changed, atol=1e-3)


def test_a_job_with_a_broken_adapter_fails_alone(family: Family, store: ObjectStore) -> None:
    store.put_blocking("finetunes/bad", b"junk", "application/octet-stream")
    bad, good = DiffusionBackend(family, store).encode([replace(JOB, adapter=Adapter("x", "finetunes/bad", 1)), JOB])
    assert isinstance(bad, JobError)
    assert "safetensors" in str(bad)
    assert isinstance(good, State)


@pytest.mark.parametrize(
    ("change", "metadata"),
    [
        ({".alpha": torch.ones(3)}, None),
        ({".lora_A.weight": torch.zeros(0, 128), ".lora_B.weight": torch.zeros(128, 0)}, None),
        ({".lora_A.weight": torch.tensor(1.0)}, None),
        ({".lora_A.weight": torch.full((2, 128), torch.nan)}, None),
        ({}, {"lora_adapter_metadata": "no JSON"}),
        ({}, {"lora_adapter_metadata": "[1]"}),
    ],
)
def test_damaged_files_are_refused_and_nothing_worse(
    family: Family, change: dict[str, Tensor], metadata: dict[str, str] | None
) -> None:
    first = f"transformer.{layer_names(family)[0]}"
    damaged = matrices(family) | {first + suffix: tensor for suffix, tensor in change.items()}
    with pytest.raises(AdapterError):
        read_weights(file(damaged, metadata), family.transformer)
