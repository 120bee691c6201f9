from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import torch
from support.adapters import adapter_file, random_matrices
from torch import nn

from deployments.backend import JobError
from deployments.contract.job import Adapter
from deployments.contract.objects import ObjectStore
from deployments.lora import weights
from deployments.lora.weights import AdapterCache, LowRank


def test_an_adapter_is_kept_whatever_its_strength(transformer: nn.Module) -> None:
    store = ObjectStore("memory:///")
    store.put_blocking("adapters/a", adapter_file(random_matrices(transformer)), "application/octet-stream")
    cache = AdapterCache(transformer, store, limit=1_000_000)
    first = cache.get(Adapter("a", "adapters/a", 1.0))
    assert cache.get(Adapter("a", "adapters/a", 0.5)) is first
    assert cache.figures.bytes == first.nbytes > 0


def test_an_adapter_that_is_gone_fails_the_job_alone(transformer: nn.Module) -> None:
    cache = AdapterCache(transformer, ObjectStore("memory:///"), limit=1_000_000)
    with pytest.raises(JobError, match="no longer available"):
        cache.get(Adapter("d", "adapters/d", 1.0))


def test_jobs_of_one_adapter_that_come_together_load_it_once(transformer: nn.Module) -> None:
    asked, others_wait = list[str](), Event()

    class Slow(ObjectStore):
        def get_blocking(self, key: str) -> bytes:
            asked.append(key)
            assert others_wait.wait(60)
            return super().get_blocking(key)

    store = Slow("memory:///")
    store.put_blocking("adapters/a", adapter_file(random_matrices(transformer)), "application/octet-stream")
    cache = AdapterCache(transformer, store, limit=1_000_000)
    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(cache.get, Adapter("a", "adapters/a", 1.0)) for _ in range(8)]
        while cache._turns.get("a", (None, 0))[1] < 8:
            pass
        others_wait.set()
        assert len({id(each.result(10)) for each in found}) == 1
    assert asked == ["adapters/a"]
    assert cache._turns == {}


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUDA error")])
def test_what_a_device_does_is_no_fault_of_the_file(
    transformer: nn.Module, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(layers: dict[str, LowRank], transformer: nn.Module) -> dict[str, LowRank]:
        raise error

    monkeypatch.setattr(weights, "_on_device", full)
    store = ObjectStore("memory:///")
    store.put_blocking("adapters/a", adapter_file(random_matrices(transformer)), "application/octet-stream")
    with pytest.raises(type(error), match=str(error)):
        AdapterCache(transformer, store, limit=1_000_000).get(Adapter("a", "adapters/a", 1.0))
