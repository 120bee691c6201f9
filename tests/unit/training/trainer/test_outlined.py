from __future__ import annotations

from pathlib import Path
from random import Random

import torch

from deployments.adapters.weights import read_weights
from training.build.checkpoints import component
from training.lessons.batches import RESOLUTION, batch_of, outlined_practice, random_grid, to_tokens
from training.lessons.pictures import tell
from training.trainer.course import Plan
from training.trainer.outlined import RANK, OutlinedStudent, train
from training.trainer.student import published
from training.worlds.pictures.drawing import draw


def test_training_gives_a_tuned_model_that_the_service_takes(tmp_path: Path) -> None:
    file = tmp_path / "adapters" / "outlined.safetensors"
    student = OutlinedStudent()
    before = {name: weight.clone() for name, weight in student.transformer.named_parameters()}
    train(student, Plan(steps=1), file)
    tuned = read_weights(file.read_bytes(), component("flux3", "transformer"))
    assert tuned.rank == RANK
    assert any(layer.up.abs().max() > 0 for layer in tuned.layers.values())
    after = {name.replace("base_layer.", ""): weight for name, weight in student.transformer.named_parameters()}
    assert all(torch.equal(weight, after[name]) for name, weight in before.items())


def test_it_begins_as_the_base() -> None:
    torch.manual_seed(0)
    student = OutlinedStudent()
    student.transformer.eval()  # else texts are padded at random
    batch = batch_of([tell(Random(0), (8, 8))], (8, 8), Random(0))
    x, t = torch.randn_like(batch.target), torch.tensor([0.5])
    with torch.inference_mode():
        plain = student.velocity(x, t, t, batch)
        student.add_layers()
        assert torch.equal(student.velocity(x, t, t, batch), plain)


def test_prompts_are_the_usual_ones_and_pictures_are_outlined() -> None:
    batch = outlined_practice(4, Random(0))
    random = Random(0)
    grid = random_grid(random)
    lessons = [tell(random, grid) for _ in range(4)]
    assert batch.prompts == tuple(lesson.read for lesson in lessons)
    outlined, plain = (
        to_tokens(draw([lesson.target for lesson in lessons], grid, RESOLUTION, outlined=outlined)[0])
        for outlined in (True, False)
    )
    assert torch.equal(batch.target, outlined)
    assert not torch.equal(batch.target, plain)


def test_it_goes_on_from_the_base() -> None:
    student = OutlinedStudent()
    student.adopt(published)
    for name, weight in published("flux3", "transformer", type(student.transformer)).items():
        assert torch.equal(student.transformer.state_dict()[name], weight), name
