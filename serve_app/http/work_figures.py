"""What replicas told of their work, as figures for Prometheus."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, InfoMetricFamily, Metric

from deployments.contract import counts
from serve_app.config.catalog import Catalog
from serve_app.tasks.store import TaskStore


async def work_figures(tasks: TaskStore, catalog: Catalog) -> list[Metric]:
    """Of every lane, as far as any of its replicas has told.

    The share of its time that a replica spends in steps is `gen_model_call_seconds_total{call="steps"}` by
    `gen_model_busy_seconds_total`; the mean batch `gen_model_step_members_total` by `gen_model_steps_total`.
    """
    busy = CounterMetricFamily("gen_model_busy_seconds", "Replicas' seconds with a job or more", labels=["lane"])
    calls = CounterMetricFamily("gen_model_call_seconds", "Of them, inside the model", labels=["lane", "call"])
    steps = CounterMetricFamily("gen_model_steps", "Forwards of any number of pictures", labels=["lane"])
    members = CounterMetricFamily("gen_model_step_members", "Pictures in them, all together", labels=["lane"])
    lookups = CounterMetricFamily(
        "gen_model_cache_lookups", "By whether it was kept from an earlier job", labels=["lane", "cache", "found"]
    )
    evictions = CounterMetricFamily("gen_model_cache_evictions", "Left for want of room", labels=["lane", "cache"])
    setup = InfoMetricFamily("gen_model_setup", "How the replica that told last runs its model", labels=["lane"])
    for lane in catalog.models:
        work = await tasks.work(lane)
        if not work:
            continue
        busy.add_metric([lane], work.get(counts.BUSY_S, 0))
        steps.add_metric([lane], work.get(counts.STEPS, 0))
        members.add_metric([lane], work.get(counts.MEMBERS, 0))
        for call in counts.CALLS:
            calls.add_metric([lane, call], work.get(counts.seconds(call), 0))
        for cache in counts.CACHES:
            lookups.add_metric([lane, cache, "yes"], work.get(counts.hits(cache), 0))
            lookups.add_metric([lane, cache, "no"], work.get(counts.misses(cache), 0))
            evictions.add_metric([lane, cache], work.get(counts.evictions(cache), 0))
        setup.add_metric([lane], await tasks.setup(lane))
    return [busy, calls, steps, members, lookups, evictions, setup]
