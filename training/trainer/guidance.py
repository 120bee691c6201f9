"""What a number beside the time means to a Flux1 model: how far it goes beyond what the words alone ask for.

A checkpoint teaches itself, after its course (Meng et al., "On Distillation of Guided Diffusion Models", 2023): its
pictures of a prompt, moved away from those of no prompt, are what it has to draw in one go when it is told a guidance.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor, nn

from deployments.families.flux1_guidance import NO_GUIDANCE
from serve_app.requests.canny import CannyRequest
from serve_app.requests.fill import FillRequest
from serve_app.requests.pro import ProRequest
from training.lessons.batches import ALL, BATCH, MIXES, Batch, practice
from training.trainer.course import Course, Plan
from training.trainer.flow import fast, noised
from training.trainer.flux1 import Flux1Student
from training.trainer.student import published

FORMS: Final = {"flux": ProRequest, "fill": FillRequest, "canny": CannyRequest}
"""Of checkpoints, the requests that choose a guidance."""
STEPS: Final = 400
_FURTHEST: Final = 1.6
"""How far a default goes where steps without guidance come in between. Twice makes outlines of single things ragged,
and with 1.3 the number's whole range is hardly seen."""
_WEAKEST: Final = 0.4
"""Where there are none, a default is what was learnt, and the least that may be asked for is this much of it."""
_LITTLE: Final = 0.05
"""A change that doesn't count, squared."""
_PLAIN: Final = 0.25
"""How many of a batch stay as they are."""


class Guidance:
    """What the numbers of a checkpoint's requests stand for."""

    def __init__(self, checkpoint: str) -> None:
        fields = FORMS[checkpoint].model_fields
        default, bounds = fields["guidance"].default, fields["guidance"].metadata
        [least], [self.most] = ([getattr(b, end) for b in bounds if hasattr(b, end)] for end in ("ge", "le"))
        if "interval" in fields:
            self.plain, known = NO_GUIDANCE, (default, _FURTHEST)
        else:
            self.plain, known = default, (least, _WEAKEST)
        self._least = min(self.plain, least)
        self._exponent = math.log(known[1]) / math.log(known[0] / self.plain)

    def drawn(self, count: int) -> Tensor:
        """(count,) of all that may be asked for, and of the plain one."""
        chosen = self._least * (self.most / self._least) ** torch.rand(count)
        return torch.where(torch.rand(count) < _PLAIN, self.plain, chosen)

    def strength(self, guidance: Tensor) -> Tensor:
        """1 for what the prompt asks for and no more, 2 for going as far again beyond it."""
        return (guidance / self.plain) ** self._exponent


class GuidanceLearner:
    """A student of one checkpoint, as a learner of what its own course left without meaning.

    Only what a number beside the time reaches learns: the embedding of both, and the modulations of blocks by it.
    """

    def __init__(self, student: Flux1Student, guidance: Guidance) -> None:
        self._student, self._guidance = student, guidance
        self._teacher = copy.deepcopy(student)
        for network in (*self._teacher.networks().values(), *student.networks().values()):
            network.requires_grad_(False)
        for name, parameter in student.transformer.named_parameters():
            parameter.requires_grad_("norm" in name or name.startswith("time_text_embed"))
        forget(student, guidance.plain)

    def networks(self) -> dict[str, nn.Module]:
        return {"transformer": self._student.transformer}

    def loss(self, batch: Batch) -> Tensor:
        """What is missed, as a share of all that guidance changes (next to nothing where words don't matter)."""
        guidance = self._guidance.drawn(len(batch.target))
        x, t, t_next, _ = noised(batch.target)
        with fast():
            with torch.no_grad():
                plain = torch.full_like(guidance, self._guidance.plain)
                asked = self._teacher.velocity(x, t, t_next, batch, plain).float()
                unasked = self._teacher.velocity(x, t, t_next, wordless(batch), plain).float()
            learnt = self._student.velocity(x, t, t_next, batch, guidance).float()
        change = (self._guidance.strength(guidance) - 1)[:, None, None] * (asked - unasked)
        return (learnt - asked - change).square().mean() / (change.square().mean() + _LITTLE)


def forget(student: Flux1Student, plain: float) -> None:
    """Makes every number mean what the plain one does: what a course never practised would be noise at first."""
    embedded = student.transformer.time_text_embed
    with torch.no_grad():
        meant = embedded.guidance_embedder(embedded.time_proj(torch.tensor([1000 * plain])))[0]
        embedded.guidance_embedder.linear_2.weight.zero_()
        embedded.guidance_embedder.linear_2.bias.copy_(meant)


def wordless(batch: Batch) -> Batch:
    """The same without prompts, of words or pictures; masks and edges stay, which guidance is not about."""
    return replace(batch, prompts=("",) * len(batch.prompts), image_prompts=None)


def course_of(checkpoint: str, plan: Plan) -> tuple[Flux1Student, Course[Batch]]:
    """The student of a published checkpoint, and how it goes on."""
    student = Flux1Student(checkpoint)
    student.adopt(published)
    learner = GuidanceLearner(student, Guidance(checkpoint))
    return student, Course(learner, lambda random, done: practice(MIXES[checkpoint], BATCH, random, ALL), plan)
