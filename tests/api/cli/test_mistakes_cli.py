"""Mistakes at the command line about settings and stores: exit code, and a line that names them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import GenServe


def test_a_settings_file_that_is_not_there(gen_serve: GenServe, tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    ran = gen_serve("webhooks", "list", "--config", str(missing))
    assert (ran.code, ran.err) == (2, f"error: no such config file: {missing}\n")


def test_a_store_out_of_reach_is_an_error_and_no_traceback(
    gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEN_REDIS__URL", "redis://127.0.0.1:1")
    assert gen_serve("webhooks", "list").code == 1
