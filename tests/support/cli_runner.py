"""`gen-serve` run in this process, as its own entry point runs it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from serve_app import cli

A_MINUTE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
"""How tables show a moment."""


@dataclass(frozen=True)
class CommandResult:
    code: int
    out: str
    err: str

    @property
    def table(self) -> list[list[str]]:
        """The rows that it printed, without the heading. A cell that is empty is left out."""
        return [re.split(r"\s{2,}", line.strip()) for line in self.out.splitlines()[1:]]

    @property
    def json(self) -> Any:
        """What it printed, which is JSON and nothing else."""
        return json.loads(self.out)

    @property
    def ids(self) -> list[str]:
        """The first column of what a list printed, without the line that leads to its next page."""
        return [row[0] for row in self.table if not row[0].startswith("more: ")]


@dataclass(frozen=True)
class GenServe:
    """Runs commands on the service that `config` describes; without one they have to find it."""

    config: Path | None
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str, notes: bool = False) -> CommandResult:
        """`notes`: stderr may have something to say, though the command succeeds."""
        if self.config is not None:
            self.monkeypatch.setenv("GEN_CONFIG", str(self.config))
        self.monkeypatch.setattr("sys.argv", ["gen-serve", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        printed = self.capsys.readouterr()
        assert isinstance(code, int)
        assert notes or bool(printed.err) == (code != 0), "errors go to stderr, and nothing else does"
        return CommandResult(code, printed.out, printed.err)


def write_config(folder: Path, repository: Path, redis_url: str, prefix: str) -> Path:
    """A settings file of a service on that Redis, with the shipped catalog."""
    path = folder / "config.yaml"
    settings = {
        "data_dir": str(folder / "data"),
        "catalog": str(repository / "configs/catalog.yaml"),
        "redis": {"url": redis_url, "prefix": prefix},
    }
    path.write_text(json.dumps(settings))
    return path
