"""Caches of encoded prompts and references."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from flux_drawing import encode, load_options, random_image, request
from support.jobs import make_job

from deployments.contract.model import BUNDLED, CacheSizes, ModelConfig
from deployments.families.family import Family
from deployments.families.flux1 import Flux1
from deployments.families.flux2 import Flux2
from deployments.families.flux3 import Flux3
from deployments.families.state import State
from deployments.lru_cache import CacheStats

pytestmark = pytest.mark.slow

EDITORS = {"kontext": Flux1, "flux2klein": Flux2, "flux3": Flux3}
NOTHING = CacheSizes(prompts_mb=0, references_mb=0, adapters_mb=0)


def load(name: str, caches: CacheSizes) -> Family:
    return EDITORS[name].load(BUNDLED / name, replace(load_options(), config=ModelConfig(caches=caches)))


@pytest.fixture(scope="module", params=EDITORS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def uncached(name: str) -> Family:
    return load(name, NOTHING)


@pytest.fixture
def family(name: str) -> Family:
    return load(name, CacheSizes())


def assert_same(actual: State, expected: State) -> None:
    for one, other in ((actual.per, expected.per), (actual.ids, expected.ids)):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[part], other[part]) for part in one)


def test_equal_prompt_and_images_hit_the_caches(name: str, family: Family, uncached: Family) -> None:
    first, second, third = (random_image(seed, 64 + 16 * seed, 64) for seed in range(3))
    for images in ((first, second), (second, first), (second, first, third), (third,)):
        assert_same(encode(family, make_job(), *images), encode(uncached, make_job(), *images))
    assert (family.caches["prompts"].hits, family.caches["prompts"].misses) == (3, 1)
    references = family.caches["references"]
    expected = (4, 4) if name == "flux3" else (5, 3)
    assert (references.hits, references.misses) == expected, "a job's only reference can have another size"
    assert references.bytes > 0
    family.forget()
    assert family.caches["references"].bytes == family.caches["prompts"].bytes == 0
    for stats in uncached.caches.values():
        assert stats == CacheStats(misses=stats.misses)


def test_equal_prompts_in_a_batch_are_encoded_once(family: Family) -> None:
    prompts = ["a red circle", "a blue star", "a red circle"]
    states = family.encode([request(make_job(str(n), prompt=prompt)) for n, prompt in enumerate(prompts)])
    texts = [state.per["text"] for state in states if isinstance(state, State)]
    assert texts[0] is texts[2]
    assert not torch.equal(texts[0], texts[1])


def test_cached_prompts_own_only_their_memory(family: Family) -> None:
    states = family.encode([request(make_job(str(n), prompt=prompt)) for n, prompt in enumerate(["a star", "a cat"])])
    for state in states:
        assert isinstance(state, State)
        assert state.per["text"].untyped_storage().nbytes() == state.per["text"].nbytes
