"""Runs `gen-serve` in this process through its own entry point."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from serve_app import cli

A_MINUTE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
"""A time as tables show it."""


@dataclass(frozen=True)
class CommandResult:
    code: int
    out: str
    err: str

    @property
    def table(self) -> list[list[str]]:
        """The printed rows without the heading. Empty cells are left out."""
        return [re.split(r"\s{2,}", line.strip()) for line in self.out.splitlines()[1:]]

    @property
    def json(self) -> Any:
        """The output, which must be one JSON document."""
        return json.loads(self.out)

    @property
    def ids(self) -> list[str]:
        """The first column of a list, without the line about its next page."""
        return [row[0] for row in self.table if not row[0].startswith("more: ")]


@dataclass(frozen=True)
class GenServe:
    """Runs commands with `config`. Without one they look for a settings file themselves."""

    config: Path | None
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str, notes: bool = False) -> CommandResult:
        """`notes`: the command may write to stderr although it succeeds."""
        if self.config is not None:
            self.monkeypatch.setenv("GEN_CONFIG", str(self.config))
        self.monkeypatch.setattr("sys.argv", ["gen-serve", *words])
        with pytest.raises(SystemExit) as exit_info:
            cli.main()
        code = exit_info.value.code
        printed = self.capsys.readouterr()
        assert isinstance(code, int)
        assert notes or bool(printed.err) == (code != 0), "stderr has errors and nothing else"
        return CommandResult(code, printed.out, printed.err)


def write_config(folder: Path, repository: Path, redis_url: str, prefix: str) -> Path:
    """Writes the settings of a service on that Redis, with the shipped catalog."""
    path = folder / "config.yaml"
    settings = {
        "data_dir": str(folder / "data"),
        "catalog": str(repository / "configs/catalog.yaml"),
        "redis": {"url": redis_url, "prefix": prefix},
    }
    path.write_text(json.dumps(settings))
    return path
