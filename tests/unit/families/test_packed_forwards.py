"""Any mix of pictures in a row against each of them alone, which is the stock pipeline's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from flux_drawing import a_picture, png, stepped
from support.adapters import adapter_file, random_matrices
from support.jobs import make_job

from deployments import loading
from deployments.families.conditioning import PreparedRequest
from deployments.families.family import Family
from deployments.families.packed.batch import Row, sdpa_loop
from deployments.families.state import State
from deployments.families.step import step
from deployments.lora.segments import AppliedAdapter
from deployments.lora.weights import read_weights

REFERENCED = {"flux3", "flux2klein", "kontext"}
SHAPES = ((64, 64, 4), (128, 64, 5), (96, 96, 8), (48, 176, 3), (64, 64, 6))
PROMPTS = ("a red circle", "a blue star on green " * 30, "x", "two yellow squares", "a red circle")


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("flux2klein", "kontext", "fill", "canny")]


@pytest.fixture(scope="module", params=["flux3", "flux", *SLOW])
def checkpoint(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def family(checkpoint: str) -> Family:
    return loading.for_pictures(loading.load(f"bundled/{checkpoint}", device="cpu", dtype="float32").family)


def requests(checkpoint: str) -> list[PreparedRequest]:
    """Of other sizes, steps, texts and guidances, and with as many references as the model takes."""
    made = []
    for place, ((width, height, steps), prompt) in enumerate(zip(SHAPES, PROMPTS, strict=True)):
        job = make_job(str(place), prompt=prompt, steps=steps, seed=place, guidance=2.0 + place)
        job = replace(job, width=width, height=height)
        drawn = png(a_picture(place, width, height))
        if checkpoint in REFERENCED:
            pictures = tuple(png(a_picture(seed, 64 + 32 * seed, 64)) for seed in range(place % 3))
            made.append(PreparedRequest(job, pictures))
        elif checkpoint == "fill":
            made.append(PreparedRequest(job, (drawn,), mask=png(a_picture(9, width, height))))
        else:
            made.append(PreparedRequest(job, control=drawn if checkpoint == "canny" else None))
    return made


def states_of(family: Family, checkpoint: str) -> list[State]:
    """Each encoded alone, so that what is compared is steps."""
    states = [state for request in requests(checkpoint) for state in family.encode([request])]
    assert all(isinstance(state, State) for state in states)
    return [state for state in states if isinstance(state, State)]


def finished(family: Family, states: list[State], *, together: bool) -> list[State]:
    """Together they join one by one and leave when they are done."""
    if not together:
        for state in states:
            stepped(family, state)
        return states
    joined = 1
    while running := [state for state in states[:joined] if state.done_steps < state.total_steps] or states[joined:]:
        step(family, running)
        joined += 1
    return states


def test_a_row_draws_what_each_draws_alone(family: Family, checkpoint: str) -> None:
    alone, together = (finished(family, states_of(family, checkpoint), together=each) for each in (False, True))
    for one, other in zip(alone, together, strict=True):
        assert (one.x - other.x).abs().max() <= 2e-4, "at most 1e-5 a step of latents that reach 3"
        assert np.abs(family.finish(one).astype(int) - family.finish(other)).max() <= 1


def test_pictures_know_nothing_of_their_neighbours(family: Family, checkpoint: str) -> None:
    """One whose numbers are all out of range leaves the others as they are."""
    plain, beside = (states_of(family, checkpoint) for _ in range(2))
    beside[1].x = torch.full_like(beside[1].x, torch.nan)
    step(family, plain)
    step(family, beside)
    for place in (0, 2, 3, 4):
        assert torch.equal(plain[place].x, beside[place].x)


def test_tuned_and_plain_pictures_share_a_step(family: Family, checkpoint: str) -> None:
    files = [adapter_file(random_matrices(family.transformer, seed)) for seed in (1, 2)]
    first, second = (read_weights(file, family.transformer).layers for file in files)
    wanted = [None, AppliedAdapter(first, 0.5), AppliedAdapter(second, 1.0), AppliedAdapter(first, 1.5), None]

    def tuned() -> list[State]:
        states = states_of(family, checkpoint)
        for state, applied in zip(states, wanted, strict=True):
            state.adapter = applied
        return states

    plain, alone, together = states_of(family, checkpoint), tuned(), tuned()
    for states in (plain, alone):
        for state in states:
            step(family, [state])
    step(family, together)
    for untuned, one, other, applied in zip(plain, alone, together, wanted, strict=True):
        assert one.v is not None
        assert untuned.v is not None
        assert other.v is not None
        assert (one.v - other.v).abs().max() <= 1e-5 * one.v.abs().max()
        assert torch.equal(untuned.v, one.v) is (applied is None)


def test_what_was_joined_serves_until_membership_changes(family: Family, checkpoint: str) -> None:
    states = states_of(family, checkpoint)
    step(family, states)
    kept = states[0].packed
    assert kept is not None
    step(family, states[::-1])
    assert states[0].packed is kept
    step(family, states[:2])
    assert states[0].packed is not kept
    stepped(family, *states[:2])
    assert states[0].packed is None, "a finished one holds on to nobody"
    assert states[0].constants is None


@pytest.mark.parametrize("lengths", [[5, 3, 9], [4, 4, 4], [7], [0, 6]])
def test_attention_keeps_to_the_picture(lengths: list[int]) -> None:
    row = Row(lengths, torch.device("cpu"))
    q, k, v = torch.randn(3, 1, row.total, 2, 8).unbind()
    attended = sdpa_loop(q, k, v, row)
    for parts in zip(*(row.split(x) for x in (q, k, v, attended)), strict=True):
        own = torch.nn.functional.scaled_dot_product_attention(*(part.transpose(1, 2) for part in parts[:3]))
        torch.testing.assert_close(parts[3], own.transpose(1, 2))
