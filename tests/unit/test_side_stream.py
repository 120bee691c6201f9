"""The order of calls on CUDA, by fake streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch

from deployments.torch_process import SideStream


class RecordingEvent:
    def __init__(self, calls: list[str], *, blocking: bool = False) -> None:
        self._calls, self._blocking = calls, blocking

    def record(self, stream: str) -> None:
        self._calls.append(f"recorded on {stream}")

    def synchronize(self) -> None:
        self._calls.append("waited asleep" if self._blocking else "waited busily")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []

    @contextmanager
    def current(stream: str) -> Iterator[None]:
        calls.append("entered")
        yield
        calls.append("left")

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: "its own")
    monkeypatch.setattr(torch.cuda, "Event", partial(RecordingEvent, calls))
    monkeypatch.setattr(torch.cuda, "stream", current)
    return calls


def test_side_stream_is_awaited_asleep_at_its_end(events: list[str]) -> None:
    with SideStream(torch.device("cuda")).activate():
        events.append("worked")
    assert events == ["entered", "worked", "left", "recorded on its own", "waited asleep"]


def test_failed_work_is_not_awaited(events: list[str]) -> None:
    with pytest.raises(ZeroDivisionError), SideStream(torch.device("cuda")).activate():
        raise ZeroDivisionError
    assert events == ["entered"]


def test_other_devices_have_no_side_stream(events: list[str]) -> None:
    with SideStream(torch.device("cpu")).activate():
        pass
    assert events == []
