from __future__ import annotations

from random import Random

import pytest
import torch

from deployments.families.flux1_guidance import NO_GUIDANCE
from training.lessons.batches import batch_of
from training.lessons.pictures import tell
from training.trainer.course import Plan
from training.trainer.flux1 import Flux1Student
from training.trainer.guidance import Guidance, GuidanceLearner, course_of, wordless
from training.trainer.student import published

GRID = (8, 8)


def test_where_steps_may_be_left_out_a_default_goes_further_than_none() -> None:
    guidance = Guidance("flux")
    none, usual, most = guidance.strength(torch.tensor([NO_GUIDANCE, 2.5, guidance.most])).tolist()
    assert (none, usual) == (1, pytest.approx(1.6))
    assert usual < most < 3


@pytest.mark.parametrize(("checkpoint", "least", "default"), [("fill", 1.5, 60), ("canny", 1, 30)])
def test_elsewhere_a_default_is_what_was_learnt(checkpoint: str, least: float, default: float) -> None:
    guidance = Guidance(checkpoint)
    weakest, usual, most = guidance.strength(torch.tensor([least, default, guidance.most])).tolist()
    assert (weakest, usual) == (pytest.approx(0.4), 1)
    assert 1.1 < most < 1.5


@pytest.mark.parametrize(("checkpoint", "least"), [("flux", 1), ("fill", 1.5), ("canny", 1)])
def test_all_that_may_be_asked_for_is_practised(checkpoint: str, least: float) -> None:
    guidance = Guidance(checkpoint)
    drawn = guidance.drawn(1000)
    assert least <= drawn.min() < 1.1 * least
    assert 0.9 * guidance.most < drawn.max() <= guidance.most
    assert (drawn == guidance.plain).sum() > 200


def test_only_what_the_number_reaches_learns_and_the_texts_stay() -> None:
    student, course = course_of("flux", Plan(steps=1, batches=1))
    next(course.run())
    before = published("flux", "transformer", type(student.transformer))
    after = student.checkpoints()["flux"]["transformer"].state_dict()
    moved = {name for name, weight in after.items() if not torch.equal(weight, before[name])}
    assert any(name.startswith("time_text_embed.guidance_embedder") for name in moved)
    assert all("norm" in name or name.startswith("time_text_embed") for name in moved)


def test_it_begins_with_nothing_of_what_guidance_changes() -> None:
    torch.manual_seed(0)
    student, guidance = Flux1Student("flux"), Guidance("flux")
    student.adopt(published)
    for network in student.networks().values():
        network.eval()  # what is random in training isn't it then
    batch = batch_of([tell(Random(k), GRID) for k in range(4)], GRID, Random(0))
    x, t = torch.randn_like(batch.target), torch.ones(4)

    def velocity(number: float) -> torch.Tensor:
        with torch.inference_mode():
            return student.velocity(x, t, t, batch, torch.full((4,), number))

    plain, most = velocity(NO_GUIDANCE), velocity(guidance.most)
    GuidanceLearner(student, guidance)
    assert not torch.equal(most, plain)
    for number in (NO_GUIDANCE, 2.5, guidance.most):
        torch.testing.assert_close(velocity(number), plain)


def test_the_published_ones_know() -> None:
    torch.manual_seed(0)
    student = Flux1Student("flux")
    student.adopt(published)
    batch = batch_of([tell(Random(k), GRID) for k in range(16)], GRID, Random(0))
    x, t = torch.randn_like(batch.target), torch.ones(16)
    guidance = Guidance("flux")
    with torch.inference_mode():
        none, most = (torch.full((16,), number) for number in (NO_GUIDANCE, guidance.most))
        asked, unasked = (student.velocity(x, t, t, told, none) for told in (batch, wordless(batch)))
        wanted = (guidance.strength(most) - 1)[:, None, None] * (asked - unasked)
        missed = student.velocity(x, t, t, batch, most) - asked - wanted
    assert missed.square().mean() < 0.3 * wanted.square().mean()
