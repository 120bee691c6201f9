"""Of each lane: its queue, how long its tasks take, what its replicas did."""

from __future__ import annotations

from typing import Final

from deployments.contract import counts
from serve_app.figures import declared
from serve_app.figures.scrape import Scrape
from serve_app.tasks.lane_load import load_of
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status
from serve_app.tasks.timings import WAIT, WORK

_NEVER: Final = dict.fromkeys(
    (
        "accepted",
        *(status.value for status in Status if status.terminal),
        "cancelled",
        "put_back",
        "strikes",
        "interruptions",
        "reaped",
        "refused",
    ),
    0,
)
"""Each event is told of from the beginning: of a counter that is not there yet, nobody sees the first increase."""


async def tell_of_queue(tasks: TaskStore, lane: str, scrape: Scrape) -> None:
    load = await load_of(tasks, lane)
    scrape.add(declared.QUEUED, load.queued, lane=lane)
    scrape.add(declared.SUSPECTS, load.suspects, lane=lane)
    scrape.add(declared.LEASED, load.running, lane=lane)
    for event, count in sorted({**_NEVER, **load.counts}.items()):
        scrape.add(declared.TASK_EVENTS, count, lane=lane, event=event.lower().replace(" ", "_"))
    ages = await tasks.ages(lane)
    scrape.add(declared.OLDEST_WAIT, ages.waiting, lane=lane)
    scrape.add(declared.REAPER_LAG, ages.lease, lane=lane, what="leases")
    scrape.add(declared.REAPER_LAG, ages.deadline, lane=lane, what="deadlines")
    scrape.add_histogram(declared.TASK_WAIT, load.histograms[WAIT], lane=lane)
    scrape.add_histogram(declared.TASK_WORK, load.histograms[WORK], lane=lane)
    if load.queued_s is not None and load.wait_s is not None:
        scrape.add(declared.QUEUED_WORK, load.queued_s, lane=lane)
        scrape.add(declared.PREDICTED_WAIT, load.wait_s, lane=lane)


async def tell_of_model(tasks: TaskStore, lane: str, scrape: Scrape) -> None:
    """As far as any replica has told.

    The share of its time that a replica spends in steps is `gen_model_call_seconds_total{call="steps"}` by
    `gen_model_busy_seconds_total`.
    """
    for endpoint, seconds in sorted((await tasks.device_seconds(lane)).items()):
        scrape.add(declared.DEVICE, seconds, lane=lane, endpoint=endpoint)
    work = await tasks.work(lane)
    if not work:
        return
    scrape.add(declared.MODEL_BUSY, work.get(counts.BUSY_S, 0), lane=lane)
    scrape.add(declared.MODEL_STEPS, work.get(counts.STEPS, 0), lane=lane)
    scrape.add(declared.MODEL_MEMBERS, work.get(counts.MEMBERS, 0), lane=lane)
    batches = counts.BATCHES.read(counts.BATCH, work, total=counts.MEMBERS)
    scrape.add_histogram(declared.MODEL_BATCH, batches, lane=lane)
    scrape.add_histogram(declared.MODEL_STEP, counts.STEP_TIMES.read(counts.STEP, work), lane=lane)
    scrape.add_summary(declared.MODEL_LOAD, work.get(counts.LOADS, 0), work.get(counts.LOAD_S, 0), lane=lane)
    for fault in counts.FAULTS:
        scrape.add(declared.MODEL_FAULTS, work.get(fault, 0), lane=lane, fault=fault)
    for call in counts.CALLS:
        scrape.add(declared.MODEL_CALLS, work.get(counts.seconds(call), 0), lane=lane, call=call)
    for cache in counts.CACHES:
        scrape.add(declared.CACHE_LOOKUPS, work.get(counts.hits(cache), 0), lane=lane, cache=cache, found="yes")
        scrape.add(declared.CACHE_LOOKUPS, work.get(counts.misses(cache), 0), lane=lane, cache=cache, found="no")
        scrape.add(declared.CACHE_EVICTIONS, work.get(counts.evictions(cache), 0), lane=lane, cache=cache)
    scrape.add_info(declared.MODEL_SETUP, await tasks.setup(lane), lane=lane)
