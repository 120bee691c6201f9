from __future__ import annotations

import pytest
from support.adapters import adapter_file, random_matrices
from torch import nn

from deployments.adapters.cache import AdapterCache
from deployments.contract.job import Adapter
from deployments.contract.objects import ObjectStore
from deployments.engine.backend import JobError


def test_the_one_unused_for_longest_leaves(transformer: nn.Module) -> None:
    store = ObjectStore("memory:///")
    for name in "abc":
        store.put_blocking(f"adapters/{name}", adapter_file(random_matrices(transformer)), "application/octet-stream")
    cache = AdapterCache(transformer, store, max_resident=2)
    first = cache.get(Adapter("a", "adapters/a", 1.0))
    cache.get(Adapter("b", "adapters/b", 1.0))
    assert cache.get(Adapter("a", "adapters/a", 0.5)) is first
    cache.get(Adapter("c", "adapters/c", 1.0))
    assert cache.resident == ["a", "c"]
    with pytest.raises(JobError, match="no longer available"):
        cache.get(Adapter("d", "adapters/d", 1.0))


def test_a_cache_that_could_hold_none_is_refused(transformer: nn.Module) -> None:
    with pytest.raises(ValueError, match="max_resident"):
        AdapterCache(transformer, ObjectStore("memory:///"), max_resident=0)
