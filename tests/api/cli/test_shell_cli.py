"""Version, help, completion, log levels and tuned models."""

from __future__ import annotations

import time
from importlib.metadata import version

import pytest
from support.cli_runner import GenServe
from support.http_service import Service

from serve_app.accounts.credits import DEFAULT_ORGANIZATION


def test_help_has_examples_line_by_line(gen_serve: GenServe) -> None:
    assert gen_serve("--version").out == f"gen-serve {version('gen-serve')}\n"
    assert "--install-completion" in gen_serve("--help").out
    lines = [line.strip() for line in gen_serve("generate", "--help").out.splitlines()]
    assert len([line for line in lines if line.startswith("gen-serve generate ")]) > 1


@pytest.mark.parametrize(("words", "expected"), [("gen-serve mod", "models"), ("gen-serve tasks wa", "wait")])
def test_bash_completes_commands(
    gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch, words: str, expected: str
) -> None:
    monkeypatch.setenv("_GEN_SERVE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert expected in gen_serve().out.split()


def test_log_level_is_set_listed_and_reset(gen_serve: GenServe) -> None:
    assert gen_serve("logs", "level", "serve_app.dispatcher", "debug").out == "serve_app.dispatcher: debug\n"
    assert gen_serve("logs", "level", "deployments", "warning").code == 0
    assert gen_serve("logs", "levels").table == [["deployments", "warning"], ["serve_app.dispatcher", "debug"]]
    assert gen_serve("logs", "level", "serve_app.dispatcher", "default").out == "serve_app.dispatcher: default\n"
    for words, message in (
        ("redis debug", "serve_app, deployments"),
        ("serve_app.dispatcher loud", "debug, info, warning"),
    ):
        wrong = gen_serve("logs", "level", *words.split())
        assert (wrong.code, message in wrong.err) == (2, True)
    assert gen_serve("logs", "levels").table == [["deployments", "warning"]]


def test_tuned_model_is_listed_and_deleted(client_cli: GenServe, service: Service) -> None:
    project = service.worker.new_project(DEFAULT_ORGANIZATION)
    finetune_id = service.worker.new_finetune(project)
    words = ("finetunes", "list", "--key", service.worker.new_key(project))
    [finetune] = client_cli(*words, "--json").json
    assert (finetune["id"], finetune["rank"], finetune["MB"]) == (finetune_id, 4, 0)
    assert finetune["uploaded"] == pytest.approx(time.time(), abs=300)
    assert client_cli(*words).ids == [finetune_id]
    assert client_cli("finetunes", "remove", finetune_id, *words[2:]).out == f"deleted {finetune_id}\n"
