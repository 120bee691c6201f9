from __future__ import annotations

import pytest
from support.adapters import adapter_file, random_matrices
from torch import nn

from deployments.adapters.cache import AdapterCache
from deployments.contract.job import Adapter
from deployments.contract.objects import ObjectStore
from deployments.engine.backend import JobError


def test_the_one_unused_for_longest_makes_room_in_bytes(transformer: nn.Module) -> None:
    store = ObjectStore("memory:///")
    for name in "abc":
        store.put_blocking(f"adapters/{name}", adapter_file(random_matrices(transformer)), "application/octet-stream")
    each = AdapterCache(transformer, store, 0).get(Adapter("a", "adapters/a", 1.0)).nbytes
    assert each > 0
    cache = AdapterCache(transformer, store, limit=2 * each)
    first = cache.get(Adapter("a", "adapters/a", 1.0))
    cache.get(Adapter("b", "adapters/b", 1.0))
    assert cache.get(Adapter("a", "adapters/a", 0.5)) is first
    cache.get(Adapter("c", "adapters/c", 1.0))
    assert cache.get(Adapter("a", "adapters/a", 1.0)) is first, "b was unused for longer"
    assert (cache.figures.evictions, cache.figures.bytes) == (1, 2 * each)


def test_an_adapter_that_is_gone_fails_the_job_alone(transformer: nn.Module) -> None:
    cache = AdapterCache(transformer, ObjectStore("memory:///"), limit=1_000_000)
    with pytest.raises(JobError, match="no longer available"):
        cache.get(Adapter("d", "adapters/d", 1.0))
