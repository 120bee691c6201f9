"""The preflight: runs all checks before serving, on this machine or on every node of the joined cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deployments.proxies import apply_proxy
from serve_app.cluster.checkpoints import RequiredCheckpoint, live_nodes, required_checkpoints
from serve_app.cluster.checks.gpu import check_gpu_memory
from serve_app.cluster.checks.objects import check_objects, delete_shared_object, write_shared_object
from serve_app.cluster.checks.pipelines import check_pipelines
from serve_app.cluster.checks.proxy import check_flags, check_token, read_flags
from serve_app.cluster.checks.redis import check_redis
from serve_app.cluster.checks.result import CheckResult, Verdict, add_place, merge_places
from serve_app.cluster.checks.weights import check_weights
from serve_app.cluster.checks.workflows import check_workflows
from serve_app.config import catalog as catalogs
from serve_app.config.replicas import BoundSettings, MissingSecret, installed_release
from serve_app.config.settings import Settings
from serve_app.ray_internals import list_serve_actors

_TIMEOUT_S: Final = 8.0
"""Seconds for all nodes together. The whole preflight takes at most ten."""
_COLUMNS: Final = ("what", "where", "verdict", "found", "what to do")
_COLOURS: Final = {Verdict.FINE: "green", Verdict.WARNING: "yellow", Verdict.REFUSED: "red"}


def run_preflight(settings: Settings, flags: Mapping[str, str]) -> bool:
    """Checks the joined cluster and prints the results. Returns whether it may serve."""
    results = check_everything(settings, flags)
    print_results(results)
    return may_serve(results)


def check_settings(settings: Settings) -> list[CheckResult]:
    """Checks what needs neither Redis nor nodes."""
    catalog, checks = catalogs.load(settings), (check_gpu_memory, check_pipelines, check_workflows)
    return add_place("settings", [result for check in checks for result in check(settings, catalog)])


def check_everything(settings: Settings, flags: Mapping[str, str] | None) -> list[CheckResult]:
    """Checks this machine; with Ray's `flags` every node of the joined cluster."""
    catalog = catalogs.load(settings)
    results = check_settings(settings)
    request = NodeRequest(
        BoundSettings.from_settings(settings),
        flags,
        required_checkpoints(settings, catalog),
        installed_release(),
        None,
        settings.network.proxy,
    )
    if flags is None:
        return results + merge_places(check_node(request, "here"))
    shared_key = asyncio.run(write_shared_object(settings))
    try:
        return results + merge_places(_check_cluster(replace(request, shared_key=shared_key), flags))
    finally:
        if shared_key is not None:
            asyncio.run(delete_shared_object(settings, shared_key))


def may_serve(results: Sequence[CheckResult]) -> bool:
    return not any(each.verdict is Verdict.REFUSED for each in results)


def print_results(results: Sequence[CheckResult]) -> None:
    grid = Table(*_COLUMNS, box=None)
    for each in results:
        verdict = Text(each.verdict.value, style=_COLOURS[each.verdict])
        grid.add_row(each.what, each.where, verdict, Text(each.message), Text(each.remedy))
    console = Console()
    console.print(grid) if console.is_terminal else Console(width=1000).print(grid)
    count = Counter(each.verdict for each in results)
    console.print(", ".join(f"{count[verdict]} {verdict.value}" for verdict in Verdict))


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """Arguments of the checks of one node."""

    bound: BoundSettings
    flags: Mapping[str, str] | None
    """Ray flags to check; None for a process that serves nothing."""
    checkpoints: tuple[RequiredCheckpoint, ...]
    release: str
    shared_key: str | None
    proxy: str


def check_node(request: NodeRequest, where: str) -> list[CheckResult]:
    apply_proxy(request.proxy)
    return add_place(where, [*_check_process(request), *asyncio.run(_check_stores(request))])


def _check_process(request: NodeRequest) -> Iterator[CheckResult]:
    if request.flags is not None:
        yield from check_flags(read_flags(request.flags), request.flags)
        yield check_token()
    if (release := installed_release()) != request.release:
        message = f"{release}, not {request.release}"
        yield CheckResult.refused("release", message, "install the same release on every node")
    else:
        yield CheckResult.fine("release", release)
    yield from check_weights(request.checkpoints)


async def _check_stores(request: NodeRequest) -> list[CheckResult]:
    try:
        settings = request.bound.settings()
    except MissingSecret as problem:
        return [CheckResult.refused("secrets", str(problem), "docs/settings.md says where secrets are looked for")]
    store, objects = await asyncio.gather(check_redis(settings), check_objects(settings, request.shared_key))
    return [CheckResult.fine("secrets", "all found"), *store, objects]


def _check_cluster(request: NodeRequest, flags: Mapping[str, str]) -> Iterator[CheckResult]:
    """Checks all nodes and Serve's own processes at once. Those that don't answer in time are reported as late."""
    processes, nodes = _start_reading_flags(tuple(flags)), _start_checks(request)
    waiting: dict[Any, str] = {**processes, **nodes}
    done = set(ray.wait(list(waiting), num_returns=len(waiting), timeout=_TIMEOUT_S)[0])
    # A node that is late may be busy. Without any answer nothing is known at all.
    late = CheckResult.warning if done & set(nodes) else CheckResult.refused
    for answer, where in waiting.items():
        if answer not in done:
            remedy = "if it is busy, repeat gen-serve check; deploy --unchecked skips the checks"
            yield from add_place(where, [late("answer", f"none within {_TIMEOUT_S:g} s", remedy)])
            continue
        try:
            reply: Any = ray.get(answer)
        except RayError as problem:
            message, remedy = str(problem).strip().splitlines()[-1], "install the same release on every node"
            yield from add_place(where, [CheckResult.refused("answer", message, remedy)])
            continue
        yield from add_place(where, check_flags(reply, flags)) if answer in processes else reply


def _start_checks(request: NodeRequest) -> dict[Any, str]:
    """Returns the node of each call."""
    task: Any = ray.remote(num_cpus=0, max_retries=0)(check_node)
    calls = {}
    for node in live_nodes(request.checkpoints):
        on_node = task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False))
        calls[on_node.remote(replace(request, checkpoints=node.checkpoints), node.name)] = node.name
    return calls


def _start_reading_flags(names: tuple[str, ...]) -> dict[Any, str]:
    """Returns the process of each call: Serve's controller and proxies. Replicas have the environment of their
    nodes."""
    return {actor.__ray_call__.remote(_read, names): where for where, actor in list_serve_actors(_TIMEOUT_S)}


# Serve's processes may still run 0.2.0 during an upgrade, so the name is the one that they have.
def _read(_: object, names: tuple[str, ...]) -> dict[str, str | None]:
    return read_flags(names)
