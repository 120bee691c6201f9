"""What a small model has never heard of is told to whoever asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.client import HOOK, Client
from support.http_service import Service, running
from support.pictures import encoded, picture
from tool_endpoints import PHOTO, SPOT

from deployments.contract import words
from deployments.contract.words import Words
from serve_app.config.models import ModelSettings

CAT = "bundled model: does not know 'cat'; see docs/bundled-models.md"
CAT_AND_SOFA = "bundled model: does not know 'cat', 'sofa'; see docs/bundled-models.md"
KNOWN = Words(
    known=("a", "an", "the", "on", "red", "star", "image"),
    said_for={"crimson": "red"},
    openings=("please",),
    fillers=(),
    colours=("red",),
    shapes=("star",),
    sizes=(),
    nouns=(),
    adjectives=(),
    edits=(),
)


@pytest.fixture(scope="module")
def small(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose models know a few words, where they read prompts at all."""
    folder = tmp_path_factory.mktemp("checkpoint")
    KNOWN.write(folder)
    of_words = ModelSettings(checkpoint=str(folder))
    models = {
        "flux3-klein": of_words,
        "flux2-pro": of_words,
        "flux1-dev": of_words,
        "flux1-fill": of_words,
        "flux2-max": ModelSettings(checkpoint="simulated/5ms"),
        "eraser": ModelSettings(backend="telea", checkpoint=str(folder)),
        "deblur": ModelSettings(backend="deconvolution", checkpoint=str(folder)),
        "ltx2": ModelSettings(checkpoint="bundled/ltx2"),
    }
    with running(tmp_path_factory.mktemp("service"), redis_url, repository, models=models) as service:
        (folder / words.FILE).unlink()  # it is read once, when the service starts
        yield service


@pytest.fixture
def client(small: Service) -> Iterator[Client]:
    with small.client() as client:
        yield client


def test_whoever_asks_for_what_a_model_has_never_heard_of_is_told(client: Client, small: Service) -> None:
    reply = client.submit(prompt="please, a cat on a sofa").json()
    assert reply["warnings"] == [CAT_AND_SOFA]
    assert small.worker.job(reply["id"])["warnings"] == [CAT_AND_SOFA]


def test_the_shipped_checkpoints_are_such_models(service: Service) -> None:
    with service.client() as client:
        assert client.submit(prompt="a cat on a sofa").json()["warnings"] == [CAT_AND_SOFA]
        assert "warnings" not in client.submit(prompt="a small red star in the top left, on blue").json()


def test_it_is_told_beside_the_result_as_well(client: Client, small: Service) -> None:
    task_id = client.submit(prompt="a cat", webhook_url=HOOK).json()["id"]
    assert client.poll(task_id).json()["details"] is None
    small.worker.deliver(task_id, picture(form="JPEG"))
    body = client.poll(task_id).json()
    assert (body["status"], body["details"]) == ("Ready", {"warnings": [CAT]})


@pytest.mark.parametrize("prompt", ["a red star", "Please, a CRIMSON star on the Star!", "stars", "8k", "*"])
def test_whoever_is_understood_is_told_nothing(client: Client, small: Service, prompt: str) -> None:
    reply = client.submit(prompt=prompt).json()
    assert set(reply) == {"id", "polling_url", "cost", "input_mp", "output_mp"}
    small.worker.deliver(reply["id"], picture(form="JPEG"))
    assert client.poll(reply["id"]).json()["details"] is None


def test_a_repetition_gets_the_same_answer(client: Client) -> None:
    headers = {"Idempotency-Key": "unknown words"}
    first, second = (client.post("/v1/gen-3-image-klein", json={"prompt": "a cat"}, headers=headers) for _ in range(2))
    assert first.json()["warnings"] == [CAT]
    assert second.json() == first.json()


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ('a cat [{"id": "dog_1", "bbox": [0, 0, 9, 9], "desc": "a dog"}]', CAT),
        ("a cat in <ref_image_0>", "bundled model: does not know 'cat', 'in'; see docs/bundled-models.md"),
        (
            "one two three four five six seven eight nine ten",
            "bundled model: does not know 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight' and 2 more; "
            "see docs/bundled-models.md",
        ),
        ("o" * 1000, f"bundled model: does not know '{'o' * 24}…'; see docs/bundled-models.md"),
        ("a \x1b[31mcat\x07 \u202eon\u200b 'so\u00adfa' \r\n", CAT_AND_SOFA.replace("'cat'", "'mcat'")),
        ("кошка, 猫", "bundled model: does not know 'кошка', '猫'; see docs/bundled-models.md"),
    ],
)
def test_a_few_words_are_named_that_do_no_harm(client: Client, prompt: str, told: str) -> None:
    assert client.submit(prompt=prompt, images=[encoded(picture())]).json()["warnings"] == [told]


def test_words_for_the_ratio_are_known_where_it_is_open(client: Client) -> None:
    prompt = "a red star, widescreen"
    assert "warnings" not in client.submit(prompt=prompt).json()
    told = client.submit(prompt=prompt, width=512, height=512).json()["warnings"]
    assert told == ["bundled model: does not know 'widescreen'; see docs/bundled-models.md"]
    assert "'banner'" in client.submit(prompt="a red banner").json()["warnings"][0], "it may be a thing"


def test_a_table_by_itself_has_no_such_words(client: Client) -> None:
    table = '[{"id": "dog_1", "bbox": [0, 0, 9, 9], "desc": "a dog"}]'
    assert "warnings" not in client.submit(prompt=table).json()


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        # What the catalog puts before a prompt is none of the client's words.
        ("gen-tools/vto-v1", {"prompt": "a cat", "person": PHOTO, "garment": PHOTO}),
        ("gen-pro", {"prompt": "a cat", "prompt_upsampling": True}),
        ("gen-pro-1.0-fill", {"prompt": "a cat", "image": PHOTO, "mask": SPOT}),
        ("gen-pro-1.1", {"prompt": "a cat"}),
    ],
)
def test_the_prompt_of_every_endpoint_counts_as_it_was_sent(
    client: Client, endpoint: str, body: dict[str, Any]
) -> None:
    reply = client.order(endpoint, **body).json()
    assert reply["warnings"] == [CAT]


def test_tuned_models_may_have_learnt_other_words(client: Client, small: Service) -> None:
    body = {"prompt": "a cat", "finetune_id": small.worker.new_finetune(client.project)}
    assert "warnings" not in client.order("gen-3-image-klein-finetuned", **body).json()


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("gen-tools/vto-v2", {"person": PHOTO, "garment": PHOTO}),
        ("gen-tools/outpainting-v1", {"input_image": PHOTO, "width": 128, "height": 96}),
        ("gen-tools/outpainting-v1", {"input_image": PHOTO, "width": 128, "height": 96, "mode": "fast"}),
        ("gen-tools/erase-v1", {"image": PHOTO, "mask": SPOT}),
        ("gen-tools/deblur-v1", {"image": PHOTO}),
        ("gen-2-max", {"prompt": "a cat"}),
        ("gen-2-pro", {"prompt": "a cat"}),
        ("gen-kontext-pro", {"prompt": "a cat"}),
        ("gen-3-video", {"mode": "t2v", "prompt": "a cat"}),
    ],
)
def test_what_reads_every_word_or_none_is_never_said_to_miss_any(
    client: Client, endpoint: str, body: dict[str, Any]
) -> None:
    """Without a prompt; algorithms; simulated models; published ones, for which nothing is fetched; videos."""
    response = client.order(endpoint, **body)
    assert response.status_code == 200, response.text
    assert "warnings" not in response.json()


def test_what_it_would_cost_is_told_without_it(client: Client) -> None:
    response = client.post("/v1/pricing", json={"path": "/v1/gen-3-image-klein", "body": {"prompt": "a cat"}})
    assert set(response.json()) == {"cost", "input_mp", "output_mp"}
