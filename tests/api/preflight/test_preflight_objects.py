"""What is said of an object store."""

from __future__ import annotations

from pathlib import Path

from deployments.contract.objects import ObjectStore
from serve_app.cluster.finding import Verdict
from serve_app.cluster.preflight import check_objects, delete_seen, write_seen
from serve_app.config.settings import ObjectSettings, Settings


def at(folder: Path) -> Settings:
    return Settings(objects=ObjectSettings(url=folder.as_uri()))


async def test_one_that_all_see_is_fit_and_left_as_it_was(tmp_path: Path) -> None:
    settings = at(tmp_path)
    seen = await write_seen(settings)
    assert seen is not None
    [found] = await check_objects(settings, "here", seen)
    assert found.verdict is Verdict.FINE
    await delete_seen(settings, seen)
    assert await ObjectStore(tmp_path.as_uri()).keys("") == []


async def test_a_folder_of_each_nodes_own_is_refused(tmp_path: Path) -> None:
    seen = await write_seen(at(tmp_path / "one"))
    [found] = await check_objects(at(tmp_path / "other"), "here", seen)
    assert (found.verdict, "another node wrote" in found.told) == (Verdict.REFUSED, True)


async def test_one_that_is_out_of_reach_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    [found] = await check_objects(at(tmp_path / "file"), "here")
    assert (found.verdict, found.told.startswith("opening it failed")) == (Verdict.REFUSED, True)
    assert await write_seen(at(tmp_path / "file")) is None
