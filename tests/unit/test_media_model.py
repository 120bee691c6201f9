from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.jobs import make_job
from support.replicas import ProcessEnded, deployed, in_this_process
from support.virtual_backend import VirtualBackend

from deployments import replica
from deployments.backend import DeviceBroken, NotFinite
from deployments.contract.events import Alive, Done, Event, Interrupted
from deployments.replica import MediaModel


@pytest.fixture
def backend() -> VirtualBackend:
    return VirtualBackend()


@pytest.fixture
async def media(backend: VirtualBackend, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MediaModel]:
    in_this_process(monkeypatch)
    made = await deployed(backend, monkeypatch)
    yield made
    made._engine.stop()


async def told(media: MediaModel, name: str) -> list[Event]:
    return [event async for event in media.generate(make_job(name))]


async def test_a_broken_device_ends_the_process_at_the_next_health_check(
    media: MediaModel, backend: VirtualBackend
) -> None:
    await media.check_health()
    backend.errors["step", "a"] = DeviceBroken("CUDA error: an illegal memory access was encountered")
    *_, last = await told(media, "a")
    assert isinstance(last, Interrupted)
    assert not last.blame
    with pytest.raises(ProcessEnded):
        await media.check_health()


async def test_nothing_but_results_that_are_not_finite_is_unhealthy(media: MediaModel, backend: VirtualBackend) -> None:
    names = [str(n) for n in range(replica._FAULTS)]
    backend.errors = {("finish", name): NotFinite() for name in names}
    for name in names[:-1]:
        await told(media, name)
        await media.check_health()
    await told(media, names[-1])
    with pytest.raises(RuntimeError, match=f"{replica._FAULTS} jobs in a row"):
        await media.check_health()
    await told(media, "good")
    await media.check_health()


async def test_what_the_replica_did_is_told_with_the_end_of_a_job(media: MediaModel, backend: VirtualBackend) -> None:
    *_, told_before_the_end, last = await told(media, "a")
    assert isinstance(last, Done)
    assert isinstance(told_before_the_end, Alive)
    assert told_before_the_end.report is not None
    counts, setup = told_before_the_end.report
    assert counts["steps"] == counts["members"] == len(backend.named("step"))
    assert counts["busy_s"] > 0
    assert setup == backend.setup
