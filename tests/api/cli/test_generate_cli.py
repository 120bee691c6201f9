"""`gen-serve generate`: from the words at the command line to a file on the disk."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import typer
from gen_serve_client.types import Submission
from PIL import Image
from support.command_line import GenServe
from support.http_service import Service
from support.pictures import picture

from serve_app.cli.service import Client
from serve_app.tasks.task import Status

ENDPOINT = "gen-3-image-klein"
STAR = ("generate", ENDPOINT, "prompt=a red star", "seed=7")


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is submitted."""
    submit, seen = Client.submit, []

    def noted(client: Client, endpoint: str, body: dict[str, Any]) -> Submission:
        seen.append(body)
        return submit(client, endpoint, body)

    monkeypatch.setattr(Client, "submit", noted)
    return seen


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the result is waited for."""

    def wait(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "wait", wait)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person looks on."""
    monkeypatch.setattr("serve_app.cli.output._someone_answers", lambda: True)


def answering(monkeypatch: pytest.MonkeyPatch, answer: bool | BaseException) -> None:
    def confirm(*_: Any, **__: Any) -> bool:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr("typer.confirm", confirm)


def only_task(gen_serve: GenServe) -> dict[str, Any]:
    [task] = gen_serve("tasks", "list", "--json").json["tasks"]
    return task


# The file.


@pytest.mark.parametrize(
    ("name", "form"), [("star.png", "PNG"), ("star.jpg", "JPEG"), ("star.JPEG", "JPEG"), ("star.webp", "WEBP")]
)
@pytest.mark.usefixtures("model")
def test_the_suffix_says_which_format_is_made(client_of: GenServe, here: Path, name: str, form: str) -> None:
    ran = client_of(*STAR, "-o", name, notes=True)
    assert (ran.code, ran.out) == (0, f"{name}\n")
    with Image.open(here / name) as made:
        assert made.format == form


@pytest.mark.usefixtures("model")
def test_without_a_name_it_is_called_by_its_id(client_of: GenServe, here: Path) -> None:
    ran = client_of(*STAR, notes=True)
    [made] = here.iterdir()
    assert ran.out == f"{made.name}\n"
    assert made.name == f"{only_task(client_of)['id']}.jpeg"


@pytest.mark.usefixtures("model")
def test_a_folder_gets_the_file_by_its_id(client_of: GenServe, here: Path) -> None:
    (here / "stars").mkdir()
    ran = client_of(*STAR, "-o", "stars", "output_format=png", notes=True)
    [made] = (here / "stars").iterdir()
    assert ran.out == f"stars/{made.name}\n"
    assert made.suffix == ".png"


@pytest.mark.usefixtures("model")
def test_seed_cost_and_id_are_told_beside_the_name(client_of: GenServe) -> None:
    ran = client_of(*STAR, notes=True)
    task = only_task(client_of)
    assert ran.err == f"seed 7 · 0.9 credits · 1.5 s · id {task['id']}\n"


@pytest.mark.usefixtures("model")
def test_json_is_one_object_and_nothing_else(client_of: GenServe, here: Path) -> None:
    ran = client_of(*STAR, "-o", "star.png", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["file"] == "star.png"
    assert (ran.json["status"], ran.json["cost"], ran.json["result"]["seed"]) == ("Ready", 0.9, 7)
    assert (here / "star.png").is_file()


def test_a_file_is_named_by_what_it_is(client_of: GenServe, service: Service, here: Path) -> None:
    task_id = client_of(*STAR, "--detach").out.strip()
    service.worker.deliver(task_id, picture(form="JPEG"))
    ran = client_of("tasks", "wait", task_id, "-o", "star.png", notes=True)
    assert ran.out == "star.jpeg\n"
    assert [path.name for path in here.iterdir()] == ["star.jpeg"]


# What is refused before anything is submitted.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-o", "missing/star.png"), "there is no folder missing for star.png"),
        (("-o", "star.mp4"), f"{ENDPOINT} makes jpeg, png, webp, and no star.mp4"),
        (("-o", "star.gif"), f"{ENDPOINT} makes jpeg, png, webp, and no star.gif"),
        (("-o", "star.png", "output_format=jpeg"), "star.png is no name for a file of output_format=jpeg"),
        (("-o", "star.png", "--detach"), "with --detach nothing is saved"),
        (("images=@missing.png",), "images: no such file: missing.png"),
        (("images=@text.png",), "images: text.png is not a JPEG, PNG or WebP picture"),
        (("images=@large.png",), "images: large.png has 21.0 MB; at most 20 MB are taken"),
        (("images=text.png",), "images=@text.png sends what is in it"),
        (("steps:=many",), "steps:=many is not JSON"),
        (("steps",), "'steps' is not name=value"),
        (("=4",), "'=4' is not name=value"),
    ],
)
def test_mistakes_cost_nothing(
    client_of: GenServe, bodies: list[dict[str, Any]], here: Path, words: tuple[str, ...], said: str
) -> None:
    (here / "text.png").write_text("not a picture")
    with (here / "large.png").open("wb") as large:
        large.write(picture())
        large.truncate(21 * 2**20)
    before = sorted(here.iterdir())
    ran = client_of(*STAR, *words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err
    assert bodies == []
    assert sorted(here.iterdir()) == before


def test_a_folder_that_can_not_be_written_is_named(
    client_of: GenServe, bodies: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    ran = client_of(*STAR)
    assert (ran.code, bodies) == (2, [])
    assert "nothing can be written in" in ran.err


def test_what_the_service_refuses_is_told_in_a_line(client_of: GenServe) -> None:
    ran = client_of("generate", ENDPOINT, "prompt=a red star", "steps=99")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert ran.err.startswith("error: HTTP 422: body.steps: ")


def test_a_task_that_came_to_nothing_is_told_in_a_line(client_of: GenServe, service: Service) -> None:
    task_id = client_of(*STAR, "--detach").out.strip()
    service.worker.end(task_id, Status.CONTENT_MODERATED, details={"Moderation Reasons": ["violence"]})
    ran = client_of("tasks", "wait", task_id)
    assert (ran.code, ran.out, ran.err) == (1, "", "error: Content Moderated: violence\n")


# Values.


@pytest.mark.parametrize(
    ("word", "sent"),
    [
        ("prompt=1984", {"prompt": "1984"}),
        ("prompt=true", {"prompt": "true"}),
        ("prompt=null", {"prompt": "null"}),
        ('prompt="quoted"', {"prompt": '"quoted"'}),
        ("prompt=[1, 2].", {"prompt": "[1, 2]."}),
        ("prompt=@home", {"prompt": "@home"}),
        ("prompt=a=b", {"prompt": "a=b"}),
        ('prompt:="as JSON"', {"prompt": "as JSON"}),
        ("steps=4", {"steps": 4}),
        ("steps:=4", {"steps": 4}),
        ("seed=null", {"seed": None}),
        ("user=4711", {"user": "4711"}),
        ("webhook_secret=12345678", {"webhook_secret": "12345678"}),
        ("aspect_ratio=16:9", {"aspect_ratio": "16:9"}),
    ],
)
def test_values_have_the_type_of_their_field(
    client_of: GenServe, bodies: list[dict[str, Any]], word: str, sent: dict[str, Any]
) -> None:
    given = {"prompt": "a red star"} | sent
    words = (word,) if "prompt" in sent else ("prompt=a red star", word)
    assert client_of("generate", ENDPOINT, *words, "--detach").code == 0
    assert bodies == [given]


def test_files_are_sent_where_pictures_are(client_of: GenServe, bodies: list[dict[str, Any]], here: Path) -> None:
    (here / "a.png").write_bytes(picture())
    (here / "b.webp").write_bytes(picture(form="WEBP"))
    assert client_of(*STAR, "images=@a.png", "images=@b.webp", "--detach").code == 0
    assert [base64.b64decode(image) for image in bodies[0]["images"]] == [picture(), picture(form="WEBP")]


# What the service has to say of it.


WARNINGS = ["image_url is not a field of this endpoint and was ignored"]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What every answer to a submission has on top."""
    submit, more = Client.submit, dict[str, Any]()
    monkeypatch.setattr(Client, "submit", lambda *sent: submit(*sent) | more)
    return more


@pytest.mark.usefixtures("interrupted")
def test_warnings_come_before_the_wait(client_of: GenServe, answers: dict[str, Any]) -> None:
    answers["warnings"] = [*WARNINGS, "too dark"]
    ran = client_of(*STAR, notes=True)
    assert (ran.out, ran.err.splitlines()[:2]) == ("", [f"warning: {WARNINGS[0]}", "warning: too dark"])


# Leaving, and coming back.


def test_detached_the_id_is_all_there_is(client_of: GenServe, here: Path) -> None:
    ran = client_of(*STAR, "--detach")
    assert ran.out == f"{only_task(client_of)['id']}\n"
    assert list(here.iterdir()) == []
    assert client_of(*STAR, "--detach", "--json").json["polling_url"]


def test_a_detached_task_is_fetched_later(client_of: GenServe, service: Service, here: Path) -> None:
    task_id = client_of(*STAR, "--detach").out.strip()
    service.worker.deliver(task_id, picture(form="JPEG"))
    ran = client_of("tasks", "wait", task_id, "-o", "star.jpeg", notes=True)
    assert (ran.code, ran.out) == (0, "star.jpeg\n")
    assert (here / "star.jpeg").read_bytes() == picture(form="JPEG")
    assert client_of("tasks", "wait", task_id, "--json").json["file"] == f"{task_id}.jpeg"


@pytest.mark.usefixtures("interrupted", "terminal")
def test_an_interrupt_cancels_if_wanted(client_of: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, True)
    ran = client_of(*STAR)
    task = only_task(client_of)
    assert (ran.code, ran.out, ran.err) == (130, "", f"cancelled {task['id']}; it costs nothing\n")
    assert (task["status"], client_of("credits", "show", "--json").json) == ("Error", [{"left": 100}])


@pytest.mark.usefixtures("interrupted", "terminal")
def test_an_interrupt_leaves_the_task_if_wanted(client_of: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, False)
    ran = client_of(*STAR)
    task = only_task(client_of)
    assert (ran.code, task["status"]) == (130, "Pending")
    assert f"gen-serve tasks wait {task['id']}" in ran.err


@pytest.mark.usefixtures("interrupted", "terminal")
@pytest.mark.parametrize("second", [KeyboardInterrupt(), None])
def test_a_second_interrupt_leaves_at_once(
    client_of: GenServe, monkeypatch: pytest.MonkeyPatch, second: BaseException | None
) -> None:
    answering(monkeypatch, second or typer.Abort())
    ran = client_of(*STAR)
    assert (ran.code, only_task(client_of)["status"]) == (130, "Pending")
    assert "gen-serve tasks wait" in ran.err


@pytest.mark.usefixtures("interrupted")
def test_where_nobody_answers_an_interrupt_cancels(client_of: GenServe) -> None:
    ran = client_of(*STAR)
    assert (ran.code, only_task(client_of)["status"]) == (130, "Error")
    assert ran.err.startswith("cancelled ")


@pytest.mark.usefixtures("interrupted", "terminal")
def test_a_task_that_ended_meanwhile_is_kept(
    client_of: GenServe, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confirm(*_: Any, **__: Any) -> bool:
        service.worker.deliver(only_task(client_of)["id"], picture(form="JPEG"))
        return True

    monkeypatch.setattr("typer.confirm", confirm)
    ran = client_of(*STAR)
    assert (ran.code, only_task(client_of)["status"]) == (130, "Ready")
    assert "not cancelled: HTTP 409" in ran.err
    assert "gen-serve tasks wait" in ran.err


@pytest.mark.usefixtures("interrupted")
def test_an_interrupt_of_waiting_leaves_the_task(client_of: GenServe) -> None:
    task_id = client_of(*STAR, "--detach").out.strip()
    ran = client_of("tasks", "wait", task_id)
    assert (ran.code, only_task(client_of)["status"]) == (130, "Pending")
    assert f"gen-serve tasks wait {task_id}" in ran.err
