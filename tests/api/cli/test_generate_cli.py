"""`gen-serve generate`: fields, files, formats and interrupts."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import typer
from gen_serve_client.types import Submission
from PIL import Image
from support.cli_runner import GenServe
from support.http_service import Service
from support.images import image_file

from serve_app.cli.service import Client
from serve_app.tasks.task import Status

ENDPOINT = "gen-3-image-klein"
STAR = ("generate", ENDPOINT, "prompt=a red star", "seed=7")


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Returns the list of submitted bodies. Every answer has a warning."""
    submit, calls = Client.submit, []

    def record_submit(client: Client, endpoint: str, body: dict[str, Any]) -> Submission:
        calls.append(body)
        return submit(client, endpoint, body) | {"warnings": ["too dark"]}  # type: ignore[return-value]

    monkeypatch.setattr(Client, "submit", record_submit)
    return calls


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends Ctrl-C while a command waits for a result."""

    def wait(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "wait", wait)


def only_task(gen_serve: GenServe) -> dict[str, Any]:
    [task] = gen_serve("tasks", "list", "--json").json["tasks"]
    return task


@pytest.mark.parametrize(("name", "form"), [("star.png", "PNG"), ("star.JPEG", "JPEG"), ("star.webp", "WEBP")])
@pytest.mark.usefixtures("model")
def test_suffix_selects_the_format(client_cli: GenServe, here: Path, name: str, form: str) -> None:
    result = client_cli(*STAR, "-o", name, notes=True)
    assert (result.code, result.out) == (0, f"{name}\n")
    assert result.err == f"seed 7 · 0.9 credits · 1.5 s · id {only_task(client_cli)['id']}\n"
    with Image.open(here / name) as image:
        assert image.format == form
    result = client_cli(*STAR, "-o", name, "--json")
    assert (result.code, result.err, result.json["file"]) == (0, "", name)
    assert (result.json["status"], result.json["cost"], result.json["result"]["seed"]) == ("Ready", 0.9, 7)


@pytest.mark.usefixtures("model")
def test_file_without_a_name_is_named_by_its_id(client_cli: GenServe, here: Path) -> None:
    result = client_cli(*STAR, notes=True)
    assert result.out == f"{only_task(client_cli)['id']}.jpeg\n"
    (here / "stars").mkdir()
    result = client_cli(*STAR, "-o", "stars", "output_format=png", notes=True)
    [file] = (here / "stars").iterdir()
    assert (result.out, file.suffix) == (f"stars/{file.name}\n", ".png")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-o", "missing/star.png"), "there is no folder missing for star.png"),
        (("-o", "locked/star.png"), "is not writable"),
        (("-o", "star.mp4"), f"{ENDPOINT} makes jpeg, png, webp: star.mp4 needs another suffix"),
        (("-o", "star.png", "output_format=jpeg"), "the suffix of star.png contradicts output_format=jpeg"),
        (("-o", "star.png", "--detach"), "--detach saves no file"),
        (("images=@missing.png",), "images: no such file: missing.png"),
        (("images=@text.png",), "images: text.png is not a JPEG, PNG or WebP image"),
        (("images=@large.png",), "images: large.png has 21.0 MB; the maximum is 20 MB"),
        (("images=text.png",), "images=@text.png sends its content"),
        (("steps:=many",), "steps:=many is not JSON"),
        (("=4",), "'=4' is not name=value"),
    ],
)
def test_invalid_argument_submits_nothing(
    client_cli: GenServe,
    bodies: list[dict[str, Any]],
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    expected: str,
) -> None:
    (here / "text.png").write_text("not an image")
    (here / "locked").mkdir()
    monkeypatch.setattr("os.access", lambda path, _: "locked" not in str(path))
    with (here / "large.png").open("wb") as large:
        large.write(image_file())
        large.truncate(21 * 2**20)
    before = sorted(here.iterdir())
    result = client_cli(*STAR, *words)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert expected in result.err
    assert bodies == []
    assert sorted(here.iterdir()) == before


def test_refused_or_failed_task_is_explained_in_one_line(client_cli: GenServe, service: Service) -> None:
    result = client_cli(*STAR, "steps=99")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert result.err.startswith("error: HTTP 422: body.steps: ")
    task_id = client_cli(*STAR, "--detach").out.strip()
    service.worker.end(task_id, Status.CONTENT_MODERATED, details={"Moderation Reasons": ["violence"]})
    result = client_cli("tasks", "wait", task_id)
    assert (result.code, result.out, result.err) == (1, "", "error: Content Moderated: violence\n")


def test_values_get_the_type_of_their_field(client_cli: GenServe, bodies: list[dict[str, Any]], here: Path) -> None:
    (here / "a.png").write_bytes(image_file())
    (here / "b.webp").write_bytes(image_file(form="WEBP"))
    prompts = ("1984", "null", '"quoted"', "[1, 2].", "@home", "a=b")
    for prompt in prompts:
        client_cli("generate", ENDPOINT, f"prompt={prompt}", "--detach", notes=True)
    assert bodies == [{"prompt": prompt} for prompt in prompts]
    others = ("steps=4", "seed=null", "user=4711", "aspect_ratio=16:9", "images=@a.png", "images=@b.webp")
    client_cli("generate", ENDPOINT, 'prompt:="as JSON"', *others, "--detach", notes=True)
    images = bodies[-1].pop("images")
    assert bodies[-1] == {"prompt": "as JSON", "steps": 4, "seed": None, "user": "4711", "aspect_ratio": "16:9"}
    assert [base64.b64decode(image) for image in images] == [image_file(), image_file(form="WEBP")]


def test_detached_task_is_saved_later(client_cli: GenServe, service: Service, here: Path) -> None:
    task_id = client_cli(*STAR, "--detach").out.strip()
    assert task_id == only_task(client_cli)["id"]
    assert list(here.iterdir()) == []
    service.worker.deliver(task_id, image_file(form="JPEG"))
    result = client_cli("tasks", "wait", task_id, "-o", "star.png", notes=True)
    assert (result.code, result.out) == (0, "star.jpeg\n"), "the suffix is that of the format"
    assert (here / "star.jpeg").read_bytes() == image_file(form="JPEG")
    assert client_cli("tasks", "wait", task_id, "--json").json["file"] == f"{task_id}.jpeg"
    assert client_cli(*STAR, "--detach", "--json").json["polling_url"]


def test_every_result_of_a_task_is_saved(client_cli: GenServe, service: Service, here: Path) -> None:
    task_id = client_cli(*STAR, "--detach").out.strip()
    service.worker.deliver_files(task_id, {name: image_file(form="PNG") for name in ("image.png", "image-2.png")})
    result = client_cli("tasks", "wait", task_id, "-o", "star.png", notes=True)
    assert (result.out, "also star-2.png" in result.err) == ("star.png\n", True)
    assert {file.name for file in here.iterdir()} == {"star.png", "star-2.png"}


@pytest.mark.parametrize(
    ("answer", "status", "expected"),
    [
        (True, "Error", "cancelled "),
        (False, "Pending", "gen-serve tasks wait "),
        (KeyboardInterrupt(), "Pending", "gen-serve tasks wait "),
        (typer.Abort(), "Pending", "gen-serve tasks wait "),
        (None, "Error", "cancelled "),
        ("too late", "Ready", "not cancelled: HTTP 409"),
    ],
    ids=["yes", "no", "interrupt", "end of input", "no terminal", "too late"],
)
@pytest.mark.usefixtures("interrupt")
def test_interrupt_asks_before_it_cancels(
    client_cli: GenServe, service: Service, monkeypatch: pytest.MonkeyPatch, answer: Any, status: str, expected: str
) -> None:
    def confirm(*_: Any, **__: Any) -> bool:
        if isinstance(answer, BaseException):
            raise answer
        if answer == "too late":
            service.worker.deliver(only_task(client_cli)["id"], image_file(form="JPEG"))
        return bool(answer)

    monkeypatch.setattr("typer.confirm", confirm)
    if answer is not None:
        monkeypatch.setattr("serve_app.cli.output._is_interactive", lambda: True)
    result = client_cli(*STAR)
    task = only_task(client_cli)
    assert (result.code, result.out, task["status"]) == (130, "", status)
    assert expected in result.err.replace(task["id"], "")


@pytest.mark.usefixtures("interrupt", "bodies")
def test_warnings_come_before_the_wait(client_cli: GenServe) -> None:
    assert client_cli(*STAR).err.startswith("warning: too dark\n")


@pytest.mark.usefixtures("interrupt")
def test_interrupted_wait_leaves_the_task(client_cli: GenServe) -> None:
    task_id = client_cli(*STAR, "--detach").out.strip()
    result = client_cli("tasks", "wait", task_id)
    assert (result.code, only_task(client_cli)["status"]) == (130, "Pending")
    assert f"gen-serve tasks wait {task_id}" in result.err
