"""The order of calls on CUDA, by streams that only take notes: there is no GPU here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from deployments.backends.side_stream import SideStream


class NotingStream:
    def __init__(self, noted: list[str]) -> None:
        self._noted = noted

    def synchronize(self) -> None:
        self._noted.append("waited")


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    noted: list[str] = []

    @contextmanager
    def current(stream: NotingStream) -> Iterator[None]:
        noted.append("entered")
        yield
        noted.append("left")

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: NotingStream(noted))
    monkeypatch.setattr(torch.cuda, "stream", current)
    return noted


def test_what_is_made_beside_the_steps_is_ready_at_the_end(noted: list[str]) -> None:
    with SideStream(torch.device("cuda")).beside_the_steps():
        noted.append("worked")
    assert noted == ["entered", "worked", "left", "waited"]


def test_an_error_is_not_waited_for(noted: list[str]) -> None:
    with pytest.raises(ZeroDivisionError), SideStream(torch.device("cuda")).beside_the_steps():
        raise ZeroDivisionError
    assert "waited" not in noted


def test_other_devices_have_none(noted: list[str]) -> None:
    with SideStream(torch.device("cpu")).beside_the_steps():
        pass
    assert noted == []
