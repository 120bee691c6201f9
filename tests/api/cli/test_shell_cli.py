"""What a shell user expects of every command: version, help, completion."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from support.command_line import GenServe


def test_the_version(gen_serve: GenServe) -> None:
    assert gen_serve("--version").out == f"gen-serve {version('gen-serve')}\n"


@pytest.mark.parametrize(("words", "expected"), [("gen-serve mod", "models"), ("gen-serve tasks wa", "wait")])
def test_words_are_completed_in_bash(
    gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch, words: str, expected: str
) -> None:
    monkeypatch.setenv("_GEN_SERVE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert expected in gen_serve().out.split()


def test_completion_can_be_installed(gen_serve: GenServe) -> None:
    assert "--install-completion" in gen_serve("--help").out


@pytest.mark.parametrize("command", ["generate", "tasks wait", "up"])
def test_examples_in_help_stand_line_by_line(gen_serve: GenServe, command: str) -> None:
    lines = [line.strip() for line in gen_serve(*command.split(), "--help").out.splitlines()]
    assert [line for line in lines if line.startswith(("gen-serve ", "id=$(gen-serve "))]
