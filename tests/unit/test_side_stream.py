"""The order of calls on CUDA, by streams that only take notes: there is no GPU here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch

from deployments.torch_process import SideStream


class NotingEvent:
    def __init__(self, noted: list[str], *, blocking: bool = False) -> None:
        self._noted, self._blocking = noted, blocking

    def record(self, stream: str) -> None:
        self._noted.append(f"recorded on {stream}")

    def synchronize(self) -> None:
        self._noted.append("waited asleep" if self._blocking else "waited busily")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    noted: list[str] = []

    @contextmanager
    def current(stream: str) -> Iterator[None]:
        noted.append("entered")
        yield
        noted.append("left")

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: "its own")
    monkeypatch.setattr(torch.cuda, "Event", partial(NotingEvent, noted))
    monkeypatch.setattr(torch.cuda, "stream", current)
    return noted


def test_what_is_made_beside_the_steps_is_ready_at_the_end(events: list[str]) -> None:
    with SideStream(torch.device("cuda")).activate():
        events.append("worked")
    assert events == ["entered", "worked", "left", "recorded on its own", "waited asleep"]


def test_an_error_is_not_waited_for(events: list[str]) -> None:
    with pytest.raises(ZeroDivisionError), SideStream(torch.device("cuda")).activate():
        raise ZeroDivisionError
    assert events == ["entered"]


def test_other_devices_have_none(events: list[str]) -> None:
    with SideStream(torch.device("cpu")).activate():
        pass
    assert events == []
