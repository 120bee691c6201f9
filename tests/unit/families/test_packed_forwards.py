"""Packed batches of different images give the same images as single ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from flux_drawing import load_family, png, random_image, run_steps
from support.adapters import adapter_file, random_matrices
from support.jobs import change_job, make_job

from deployments.families.conditioning import PreparedRequest
from deployments.families.family import Family
from deployments.families.packed.batch import PackedSequence, sdpa_loop
from deployments.families.state import State
from deployments.families.step import step
from deployments.lora.segments import AppliedAdapter
from deployments.lora.weights import read_weights

REFERENCED = {"flux3", "flux2klein", "kontext"}
SHAPES = ((64, 64, 3), (128, 64, 4), (96, 96, 5), (48, 176, 2), (64, 64, 3))
PROMPTS = ("a red circle", "a blue star on green " * 30, "x", "two yellow squares", "a red circle")


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("flux2klein", "kontext", "fill", "canny")]


@pytest.fixture(scope="module", params=["flux3", "flux", *SLOW])
def checkpoint(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def family(checkpoint: str) -> Family:
    return load_family(checkpoint)


def requests(checkpoint: str) -> list[PreparedRequest]:
    """Returns requests with different sizes, steps, prompts, guidances and numbers of references."""
    items = []
    for place, ((width, height, steps), prompt) in enumerate(zip(SHAPES, PROMPTS, strict=True)):
        job = make_job(str(place), prompt=prompt, steps=steps, seed=place, guidance=2.0 + place)
        job = change_job(job, width=width, height=height)
        reference = png(random_image(place, width, height))
        if checkpoint in REFERENCED:
            images = tuple(png(random_image(seed, 64 + 32 * seed, 64)) for seed in range(place % 3))
            items.append(PreparedRequest(job, images))
        elif checkpoint == "fill":
            items.append(PreparedRequest(job, (reference,), mask=png(random_image(9, width, height))))
        else:
            items.append(PreparedRequest(job, control=reference if checkpoint == "canny" else None))
    return items


def make_states(family: Family, checkpoint: str) -> list[State]:
    """Encodes each request alone, so that tests compare only steps."""
    states = [state for request in requests(checkpoint) for state in family.encode([request])]
    assert all(isinstance(state, State) for state in states)
    return [state for state in states if isinstance(state, State)]


def run_to_end(family: Family, states: list[State], *, together: bool) -> list[State]:
    """Runs the states alone or together; together they join one by one and leave when they are done."""
    if not together:
        for state in states:
            run_steps(family, state)
        return states
    members = 1
    while running := [state for state in states[:members] if state.done_steps < state.total_steps] or states[members:]:
        step(family, running)
        members += 1
    return states


def test_packed_images_equal_single_images(family: Family, checkpoint: str) -> None:
    alone, together = (run_to_end(family, make_states(family, checkpoint), together=each) for each in (False, True))
    for one, other in zip(alone, together, strict=True):
        assert (one.x - other.x).abs().max() <= 2e-4
        assert np.abs(family.finish(one).astype(int) - family.finish(other)).max() <= 1


def test_packed_images_do_not_affect_each_other(family: Family, checkpoint: str) -> None:
    """NaN in one image leaves the others unchanged."""
    plain, beside = (make_states(family, checkpoint) for _ in range(2))
    beside[1].x = torch.full_like(beside[1].x, torch.nan)
    step(family, plain)
    step(family, beside)
    for place in (0, 2, 3, 4):
        assert torch.equal(plain[place].x, beside[place].x)


def test_images_with_and_without_adapter_share_a_step(family: Family, checkpoint: str) -> None:
    files = [adapter_file(random_matrices(family.transformer, seed)) for seed in (1, 2)]
    first, second = (read_weights(file, {"transformer": family.transformer}).layers for file in files)
    adapters = [None, AppliedAdapter(first, 0.5), AppliedAdapter(second, 1.0), AppliedAdapter(first, 1.5), None]

    def make_tuned() -> list[State]:
        states = make_states(family, checkpoint)
        for state, applied in zip(states, adapters, strict=True):
            state.adapter = applied
        return states

    plain, alone, together = make_states(family, checkpoint), make_tuned(), make_tuned()
    for states in (plain, alone):
        for state in states:
            step(family, [state])
    step(family, together)
    for untuned, one, other, applied in zip(plain, alone, together, adapters, strict=True):
        assert one.v is not None
        assert untuned.v is not None
        assert other.v is not None
        assert (one.v - other.v).abs().max() <= 1e-5 * one.v.abs().max()
        assert torch.equal(untuned.v, one.v) is (applied is None)


def test_packed_batch_is_reused_until_members_change(family: Family, checkpoint: str) -> None:
    states = make_states(family, checkpoint)
    step(family, states)
    batch = states[0].packed_batch
    assert batch is not None
    step(family, states[::-1])
    assert states[0].packed_batch is batch
    step(family, states[:2])
    assert states[0].packed_batch is not batch
    run_steps(family, *states[:2])
    assert states[0].packed_batch is None, "a finished state still refers to the batch"
    assert states[0].constants is None


@pytest.mark.parametrize("lengths", [[5, 3, 9], [4, 4, 4], [7], [0, 6]])
def test_attention_stays_within_an_image(lengths: list[int]) -> None:
    packed = PackedSequence(lengths, torch.device("cpu"))
    q, k, v = torch.randn(3, 1, packed.total, 2, 8).unbind()
    attended = sdpa_loop(q, k, v, packed)
    for parts in zip(*(packed.split(x) for x in (q, k, v, attended)), strict=True):
        own = torch.nn.functional.scaled_dot_product_attention(*(part.transpose(1, 2) for part in parts[:3]))
        torch.testing.assert_close(parts[3], own.transpose(1, 2))
