from __future__ import annotations

from random import Random

import pytest
import torch

from deployments.families.flux1_guidance import NO_GUIDANCE
from training.lessons.batches import batch_of
from training.lessons.pictures import tell
from training.trainer.course import Plan
from training.trainer.flux1 import Flux1Student
from training.trainer.guidance import FORMS, Guidance, GuidanceLearner, course_of, wordless
from training.trainer.student import published

GRID = (8, 8)


@pytest.mark.parametrize("checkpoint", FORMS)
def test_a_number_stands_for_more_the_higher_it_is(checkpoint: str) -> None:
    default = FORMS[checkpoint].model_fields["guidance"].default
    guidance = Guidance(checkpoint)
    none, usual, most = guidance.strength(torch.tensor([NO_GUIDANCE, default, guidance.most])).tolist()
    assert none == 1
    assert usual == pytest.approx(2)
    assert 2 < most < 4


def test_all_that_may_be_asked_for_is_practised() -> None:
    drawn = Guidance("flux").drawn(1000)
    assert drawn.min() == NO_GUIDANCE
    assert 4.5 < drawn.max() <= 5


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
    student = Flux1Student("flux")
    student.adopt(published)
    batch = batch_of([tell(Random(k), GRID) for k in range(4)], GRID, Random(0))
    assert 0.7 < GuidanceLearner(student, Guidance("flux")).loss(batch).item() < 1


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
