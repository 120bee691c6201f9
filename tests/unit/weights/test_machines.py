"""Several machines, some of which have one folder in common: in this process, with a folder for each cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from serve_app.weights.fetching import Ended, Fetcher, Told
from serve_app.weights.machines import Lost, Machine, fetched
from serve_app.weights.wanted import Wanted

ONE, OTHER = Wanted("one", "owner/one"), Wanted("other", "owner/other")


class Recorded(Fetcher):
    """A Fetcher whose cache is a folder, and which only notes what it was to fetch."""

    def __init__(self, cache: Path, monkeypatch: pytest.MonkeyPatch, *, lost: bool = False) -> None:
        self._cache, self._monkeypatch, self._lost = cache, monkeypatch, lost
        self.begun: tuple[Wanted, ...] | None = None

    def mark(self) -> str:
        self._answer()
        return super().mark()

    def sees(self, names: Sequence[str]) -> frozenset[str]:
        self._answer()
        return super().sees(names)

    def unmark(self, name: str) -> None:
        self._answer()
        super().unmark(name)

    def begin(self, wanted: Sequence[Wanted]) -> None:
        self._answer()
        self.begun = tuple(wanted)

    def told(self) -> Told:
        self._answer()
        return Told(ended=tuple(Ended(each.checkpoint) for each in self.begun or ()), is_over=True)

    def _answer(self) -> None:
        if self._lost:
            raise Lost("it does not answer")
        self._monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(self._cache))


def test_a_folder_that_machines_share_is_fetched_into_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caches = (tmp_path / "shared", tmp_path / "own", tmp_path / "shared")
    fetchers = [Recorded(each, monkeypatch) for each in caches]
    wanted = ((ONE,), (ONE,), (ONE, OTHER))
    machines = [Machine(f"node {i}", *each) for i, each in enumerate(zip(fetchers, wanted, strict=True))]
    *_, told = fetched(machines)
    assert [each.begun for each in fetchers] == [(ONE, OTHER), (ONE,), None]
    assert {where: len(each.ended) for where, each in told.items()} == {"node 0, node 2": 2, "node 1": 1}
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [], "a mark stays"


def test_a_machine_that_is_lost_is_told_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetchers = [Recorded(tmp_path / name, monkeypatch, lost=name == "lost") for name in ("lost", "well")]
    *_, told = fetched([Machine(f"node {i}", each, (ONE,)) for i, each in enumerate(fetchers)])
    assert told["node 0"].ended == (Ended("", "it does not answer"),)
    assert told["node 1"].ended == (Ended("owner/one"),)
