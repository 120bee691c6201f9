"""What is practised must be what the service runs: the same tokens, positions, texts and conditions."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from PIL import Image
from support.bundle import copied
from torch import Tensor

from deployments import checkpoints
from deployments.contract.job import GenerationJob
from deployments.families.moment import Moment
from deployments.families.placement import Placement
from deployments.families.prepared_request import PreparedRequest
from deployments.families.registry import family_of
from deployments.families.state import State
from training.build.picture_autoencoder import LATENT_STD
from training.build.words import WORDS
from training.lessons import batches
from training.lessons.batches import BUILDERS, batch_of, drawn_masks, to_tokens
from training.lessons.lesson import Lesson
from training.lessons.pictures import LESSONS
from training.trainer import flux1
from training.trainer import student as trainer_student
from training.trainer.__main__ import STUDENTS
from training.trainer.student import publish
from training.trainer.student import published as stored
from training.worlds.pictures.drawing import draw
from training.worlds.pictures.scene import Grid, Scene

GRID = (8, 14)
GUIDANCE = 3.5
FAMILIES = ("flux1", "flux2", "flux3")
PRACTISED = [
    ("flux3", "flux3", "tell"),
    ("flux3", "flux3", "change"),
    ("flux3", "flux3", "combine"),
    ("flux3", "flux3", "lay out"),
    ("flux2", "flux2klein", "tell"),
    ("flux2", "flux2klein", "combine"),
    ("flux1", "flux", "tell"),
    ("flux1", "flux", "resemble"),
    ("flux1", "kontext", "combine"),
    ("flux1", "fill", "fill"),
    ("flux1", "canny", "trace"),
]


@pytest.fixture(scope="module")
def students() -> dict[str, Any]:
    torch.manual_seed(0)
    made: dict[str, Any] = {name: STUDENTS[name]() for name in FAMILIES}
    for student in made.values():
        for network in student.networks().values():
            network.eval().half().float()  # as it will be stored
    return made


@pytest.fixture(scope="module")
def published(students: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    bundle = tmp_path_factory.mktemp("bundle")
    for student in students.values():
        for checkpoint in student.checkpoints():
            copied(checkpoint, bundle)
        publish(student, bundle / "checkpoints")
    return bundle / "checkpoints"


@pytest.mark.parametrize(("model", "checkpoint", "kind"), PRACTISED)
def test_a_student_sees_what_the_family_sees(
    model: str,
    checkpoint: str,
    kind: str,
    students: dict[str, Any],
    published: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flux1, "WEAKEST", GUIDANCE)
    monkeypatch.setattr(flux1, "STRONGEST", GUIDANCE)
    monkeypatch.setattr(batches, "REFERENCE_NOISE", 0.0)
    monkeypatch.setattr(batches, "OTHER_GRID", 0.0)
    lesson = LESSONS[kind](Random(3), GRID, False)
    batch = BUILDERS.get(kind, batch_of)([lesson], GRID, Random(0))
    place = Placement(torch.device("cpu"), torch.float32, render_side=128, words=WORDS)
    family = checkpoints.for_pictures(family_of(published / checkpoint).load(published / checkpoint, place))
    (state,) = family.encode([commission(kind, lesson, batch.channels)])
    assert isinstance(state, State)
    assert state.grid == GRID
    t, t_next = torch.tensor([0.8]), torch.tensor([0.3])
    with torch.inference_mode():
        run = family.velocity(state, Moment(t, t_next, None if state.guidance is None else state.guidance[:1]))
        learnt = students[model].velocity(state.x, t, t_next, batch)
    assert (run - learnt).abs().mean() < 0.01 * run.abs().mean()


@pytest.mark.parametrize("model", FAMILIES)
def test_a_student_can_go_on_from_what_is_published(model: str, students: dict[str, Any], published: Path) -> None:
    fresh = STUDENTS[model]()
    fresh.adopt(functools.partial(stored, checkpoints=published))
    known = students[model].networks()
    for name, network in fresh.networks().items():
        for part, weight in network.state_dict().items():
            # Constants of the tied and idle kind are made anew, the same for all.
            assert torch.allclose(weight, known[name].state_dict()[part], atol=1e-6), f"{name}.{part}"


@pytest.mark.parametrize("name", ["flux", "kontext", "fill", "canny"])
def test_a_checkpoint_goes_on_alone_from_what_it_learnt_with_others(
    name: str, students: dict[str, Any], published: Path
) -> None:
    alone = STUDENTS[name]()
    alone.adopt(functools.partial(stored, checkpoints=published))
    assert set(alone.checkpoints()) == {name}
    joint = students["flux1"].checkpoints()[name]
    for component, network in alone.checkpoints()[name].items():
        for part, weight in network.state_dict().items():
            assert torch.allclose(weight, joint[component].state_dict()[part], atol=1e-6), f"{component}.{part}"


@pytest.mark.parametrize("model", FAMILIES)
def test_nothing_is_left_out_at_random_while_learning(
    model: str, students: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published T5 encoders drop a tenth of everything; a small one then learns far more slowly."""
    monkeypatch.setattr(flux1, "WEAKEST", GUIDANCE)
    monkeypatch.setattr(flux1, "STRONGEST", GUIDANCE)
    monkeypatch.setattr(trainer_student, "FULLY_PADDED", 2.0)
    lessons = [LESSONS["tell"](Random(seed), GRID, False) for seed in range(2)]
    batch = batch_of(lessons, GRID, Random(0))
    x, t = torch.randn_like(batch.target), torch.tensor([0.8, 0.3])
    student = STUDENTS[model]()
    with torch.inference_mode():
        runs = []
        for learning in (True, False):
            for name, network in student.networks().items():
                network.load_state_dict(students[model].networks()[name].state_dict())
                network.train(learning)
            runs.append(student.velocity(x, t, t * 0.5, batch))
    assert torch.equal(*runs)


def test_a_token_holds_the_averages_of_its_pixels() -> None:
    tokens = to_tokens(torch.arange(3 * 32 * 56).reshape(1, 3, 32, 56).float())
    assert tokens.shape == (1, 112, 48)
    picture = (tokens[0, 15] * LATENT_STD).unflatten(0, (3, 2, 2, 2, 2))  # colour, then rows and columns of each fold
    patch = torch.arange(3 * 32 * 56).reshape(3, 32, 56)[:, 4:8, 4:8]
    assert torch.allclose(picture.permute(0, 3, 1, 4, 2).reshape(3, 4, 4), patch.float())


def test_things_count_more_than_the_background() -> None:
    lesson = LESSONS["tell"](Random(1), GRID, True)
    batch = batch_of([lesson], GRID, Random(0))
    assert batch.weight.shape == batch.target.shape
    assert batch.weight.mean() == pytest.approx(1)
    _, covered = draw([lesson.target], GRID, batches.RESOLUTION)
    spread = to_tokens(covered.expand(-1, 3, -1, -1)) * LATENT_STD
    assert batch.weight[spread > 0.9].min() > batch.weight[spread == 0].median()


def commission(kind: str, lesson: Lesson, channels: Tensor | None) -> PreparedRequest:
    job = GenerationJob(
        id="job",
        attempt=1,
        prompt=lesson.prompt,
        width=16 * GRID[1],
        height=16 * GRID[0],
        steps=4,
        seed=1,
        output_format="png",
        output_prefix="results/job/1",
        guidance=GUIDANCE,
    )
    drawn = tuple(drawing(scene, GRID) for scene in lesson.references)
    match kind:
        case "fill":
            return PreparedRequest(
                job, references=drawn, mask=png(drawn_masks([lesson], GRID)[0].expand(3, -1, -1) * 2 - 1)
            )
        case "resemble":
            return PreparedRequest(job, image_prompt=drawn[0])
        case "trace":
            fine, _ = draw([lesson.target], GRID, 16, samples=1)
            return PreparedRequest(job, control=png(batches.edges(fine, Random(0))[0]))
        case _:
            return PreparedRequest(job, references=drawn)


def drawing(scene: Scene, grid: Grid) -> bytes:
    return png(draw([scene], grid, 16, samples=1)[0][0])


def png(picture: Tensor) -> bytes:
    """(3, H, W) in [-1, 1]."""
    pixels = ((picture + 1) * 127.5).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "png")
    return stream.getvalue()
