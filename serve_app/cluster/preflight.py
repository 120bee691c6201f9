"""The preflight: checks of nodes, Ray's switches, Redis and the object store before serving."""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from redis.exceptions import RedisError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deployments.contract.objects import UNREACHABLE, ObjectStore, WrongOptions
from deployments.proxies import apply_proxy
from serve_app import ray_internals
from serve_app.accounts.names import find_clashes
from serve_app.cluster.finding import Finding, Verdict, fine, refusal, together, warning
from serve_app.cluster.gpu_memory import check_gpu_memory, check_weights
from serve_app.cluster.pipelines import check_pipelines
from serve_app.cluster.weights import RequiredCheckpoint, required_checkpoints
from serve_app.config import catalog as catalogs
from serve_app.config.replicas import BoundSettings, MissingSecret, installed_release
from serve_app.config.settings import Settings
from serve_app.ray_internals import list_serve_actors
from serve_app.storage import connection
from serve_app.storage.refusals import MissingPermissions, check_permissions, describe_store_problem

_VITAL: Final = frozenset(
    (
        "RAY_SERVE_ENABLE_HA_PROXY",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED",
        "RAY_SERVE_USE_GRPC_BY_DEFAULT",
        "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS",
        "FORWARDED_ALLOW_IPS",
    )
)
"""Without these, requests reach nothing, one dead caller stalls all, or clients choose their own address."""
_FREE: Final = frozenset(("RAY_SERVE_HAPROXY_NBTHREAD",))
"""An operator may have a better value."""
PROXY: Final = "RAY_SERVE_HAPROXY_BINARY_PATH"
_SCRIPT: Final = "proxy_start.py"
_WHAT: Final = "switches"


def read_switches(names: tuple[str, ...]) -> dict[str, str | None]:
    """Those of the process in which it is called, and the beginning of the proxy's script."""
    switches = {name: os.environ.get(name) for name in names}
    path = os.environ.get(PROXY)
    switches[PROXY] = None
    if path is not None:
        try:
            with open(path, "rb") as script:
                switches[PROXY] = _SCRIPT if _SCRIPT.encode() in script.read(4096) else path
        except OSError:
            switches[PROXY] = path
    return switches


def switch_findings(where: str, actual: Mapping[str, str | None], expected: Mapping[str, str]) -> Iterator[Finding]:
    """Of one process."""
    wrong = {
        name: value
        for name, value in expected.items()
        if actual[name] != value and (name not in _FREE or not actual[name])
    }
    vital = {name: value for name, value in wrong.items() if name in _VITAL}
    if vital:
        yield refusal(
            _WHAT, where, f"without {_format_switches(vital)}", "start Ray on every node with them in its environment"
        )
    if rest := {name: value for name, value in wrong.items() if name not in _VITAL}:
        yield warning(_WHAT, where, f"without {_format_switches(rest)}", "docs/settings.md says what each is for")
    if actual[PROXY] != _SCRIPT:
        yield warning(
            _WHAT,
            where,
            f"{PROXY} does not run {_SCRIPT}",
            "else slow clients hold connections up, and a restarted proxy answers 404: docs/settings.md",
        )
    elif not wrong:
        yield fine(_WHAT, where, "as they should be")


def _format_switches(switches: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in switches.items())


FOLDER: Final = "preflight"
_CONTENT: Final = b"may be deleted"
_OBJECTS_WHAT: Final = "object store"
_WITHIN_S: Final = 5.0
_REMEDY: Final = "objects.url and its credentials have to be right on every node: put, get, list and delete are needed"


async def check_objects(settings: Settings, where: str, shared_key: str | None = None) -> list[Finding]:
    """`shared_key` is the key of an object that another process wrote: all have to see the same store."""
    step = "opening it"
    key = f"{FOLDER}/{uuid.uuid4().hex}/{uuid.uuid4().hex}.txt"
    try:
        store = ObjectStore(settings.objects_url, settings.objects.options)
        async with asyncio.timeout(_WITHIN_S):
            step = "put"
            await store.put(key, _CONTENT, "text/plain")
            step = "get"
            if await store.get(key) != _CONTENT:
                return [refusal(_OBJECTS_WHAT, where, "it gives back something else", _REMEDY)]
            step = "list"
            if key not in await store.keys(key.rpartition("/")[0]):
                return [refusal(_OBJECTS_WHAT, where, "it does not list what was just written", _REMEDY)]
            step = "delete"
            await store.delete_prefix(key.rpartition("/")[0])
            if shared_key is not None:
                step = "get what another node wrote"
                await store.get(shared_key)
    except FileNotFoundError:
        remedy = "a bucket, or a folder that all nodes share, in objects.url"
        return [refusal(_OBJECTS_WHAT, where, f"it has not what another node wrote: {settings.objects_url}", remedy)]
    except WrongOptions as problem:
        return [refusal(_OBJECTS_WHAT, where, str(problem), "correct objects.options")]
    except (*UNREACHABLE, ValueError, TimeoutError) as problem:
        # The store's own words may hold addresses with signatures: only what kind of problem it is.
        return [refusal(_OBJECTS_WHAT, where, f"{step} failed: {type(problem).__name__}", _REMEDY)]
    return [fine(_OBJECTS_WHAT, where, "put, get, list, delete")]


async def write_shared_object(settings: Settings) -> str | None:
    """Writes what others should see; returns its key, or None where nothing can be written."""
    key = f"{FOLDER}/{uuid.uuid4().hex}/seen.txt"
    try:
        async with asyncio.timeout(_WITHIN_S):
            await ObjectStore(settings.objects_url, settings.objects.options).put(key, _CONTENT, "text/plain")
    except (*UNREACHABLE, ValueError, TimeoutError):
        return None
    return key


async def delete_shared_object(settings: Settings, key: str) -> None:
    async with asyncio.timeout(_WITHIN_S):
        await ObjectStore(settings.objects_url, settings.objects.options).delete_prefix(key.rpartition("/")[0])


_OLDEST: Final = (7, 0)
_ROUNDS: Final = 5
_SLOW_S: Final = 0.02
_SKEW_WARNING_S: Final = 2.0
_WRONG_CLOCK_S: Final = 30.0
"""Links, tokens and webhooks' signatures depend on the clocks of nodes."""
_STORE_WHAT: Final = "Redis"


_CLASH: Final = "another member has this name in other letters: gen-serve members set NAME ROLE makes them one"


async def check_redis(settings: Settings, where: str) -> list[Finding]:
    """From this process. An address that does not answer within a second counts as out of reach."""
    try:
        redis = connection.connect(settings.redis_url, retries=0, timeout_s=1.0, answer_s=2.0)
    except ValueError as problem:
        return [refusal(_STORE_WHAT, where, str(problem), "GEN_REDIS__URL, as docs/settings.md has it")]
    try:
        await check_permissions(redis, settings.redis.prefix)
        return [
            *_persistence_findings(await redis.info("all"), settings, where),
            *await _latency_findings(redis, where),
            *[warning("members", where, each, _CLASH) for each in await find_clashes(redis, settings.redis.prefix)],
        ]
    except MissingPermissions as problem:
        return [refusal(_STORE_WHAT, where, problem.problem, problem.remedy)]
    except RedisError as problem:
        reason = describe_store_problem(problem)
        remedy = (
            "see the server's log" if reason else "redis.url has to be right, and the server reachable from every node"
        )
        return [refusal(_STORE_WHAT, where, f"{reason or 'out of reach'}: {_first_line(problem)}", remedy)]
    finally:
        await redis.aclose()


def _persistence_findings(info: Mapping[str, Any], settings: Settings, where: str) -> Iterator[Finding]:
    version_text = str(info.get("valkey_version") or info.get("redis_version") or "0")
    name = "Valkey" if "valkey_version" in info else "Redis"
    number = re.match(r"(\d+)\.(\d+)", version_text)
    if number is None or (int(number[1]), int(number[2])) < _OLDEST:
        yield refusal(_STORE_WHAT, where, f"{name} {version_text}", "Redis 7.0 or later, or Valkey")
    else:
        yield fine(_STORE_WHAT, where, f"{name} {version_text}")
    if not int(info.get("aof_enabled", 0)):
        yield refusal("persistence", where, "appendonly is off: a restart would lose accepted tasks", "appendonly yes")
    else:
        yield fine("persistence", where, "appendonly")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield refusal("eviction", where, f"{policy}: a full server would drop tasks", "maxmemory-policy noeviction")
    else:
        yield fine("eviction", where, "noeviction")
    prefix = settings.redis.prefix
    if int(info.get("cluster_enabled", 0)) and not re.search(r"\{[^}]+\}", prefix):
        yield refusal(
            "cluster mode", where, f"redis.prefix {prefix} has no hash tag", f"redis.prefix: '{{{prefix.strip(':')}}}:'"
        )
    behind = int(info.get("connected_slaves", 0))
    if behind < settings.redis.replicas:
        yield refusal(
            "replicas of Redis",
            where,
            f"{behind}, and redis.replicas is {settings.redis.replicas}: nothing would be accepted",
            "connect them, or lower redis.replicas",
        )


async def _latency_findings(redis: Any, where: str) -> list[Finding]:
    """How long an answer takes, and how far this machine's clock is from the server's."""
    took, skews = [], []
    for _ in range(_ROUNDS):
        began, sent_at = time.perf_counter(), time.time()
        seconds, micros = await redis.time()
        took.append(time.perf_counter() - began)
        # Compared with the middle of the call: that is right to half of what it took.
        skews.append(int(seconds) + int(micros) / 1e6 - (sent_at + took[-1] / 2))
    delay, skew = statistics.median(took), min(skews, key=abs)
    slow = f"{delay * 1000:.0f} ms"
    latency = (
        warning("latency of Redis", where, slow, f"nearer, or less busy: below {_SLOW_S * 1000:.0f} ms")
        if delay > _SLOW_S
        else fine("latency of Redis", where, f"below {_SLOW_S * 1000:.0f} ms")
    )
    return [latency, check_clock(skew, where)]


def check_clock(skew_s: float, where: str) -> Finding:
    """`skew_s` is how much later it is at the server."""
    message, remedy = f"{abs(skew_s):.1f} s {'behind' if skew_s > 0 else 'ahead of'} Redis' clock", "set clocks by NTP"
    if abs(skew_s) > _WRONG_CLOCK_S:
        return refusal("clock", where, message, remedy)
    if abs(skew_s) > _SKEW_WARNING_S:
        return warning("clock", where, message, remedy)
    return fine("clock", where, f"within {_SKEW_WARNING_S:g} s of Redis'")


def _first_line(problem: Exception) -> str:
    return str(problem).partition("\n")[0] or type(problem).__name__


@dataclass(frozen=True, slots=True)
class CheckRequest:
    bound: BoundSettings
    switches: Mapping[str, str] | None
    """None: this process serves nothing, so it need not have them."""
    checkpoints: tuple[RequiredCheckpoint, ...]
    release: str
    shared_key: str | None
    proxy: str


def run_checks(request: CheckRequest, where: str) -> list[Finding]:
    apply_proxy(request.proxy)
    return [*_itself(request, where), *asyncio.run(_store_findings(request, where))]


def _itself(request: CheckRequest, where: str) -> Iterator[Finding]:
    if request.switches is not None:
        yield from switch_findings(where, read_switches(tuple(request.switches)), request.switches)
        yield _token(where)
    if (release := installed_release()) != request.release:
        yield refusal("release", where, f"{release}, not {request.release}", "install the same one on every node")
    else:
        yield fine("release", where, release)
    yield from check_weights(request.checkpoints, where)


async def _store_findings(request: CheckRequest, where: str) -> list[Finding]:
    try:
        settings = request.bound.settings()
    except MissingSecret as problem:
        return [refusal("secrets", where, str(problem), "docs/settings.md says where secrets are looked for")]
    groups = await asyncio.gather(check_redis(settings, where), check_objects(settings, where, request.shared_key))
    return [fine("secrets", where, "all found"), *(finding for findings in groups for finding in findings)]


def _token(where: str) -> Finding:

    if ray_internals.requires_token():
        return fine("Ray's token", where, "asked for")
    message = "not asked for: whoever reaches a port of Ray's can run code here"
    return warning("Ray's token", where, message, "start Ray on every node with RAY_AUTH_MODE=token")


COLUMNS = ("what", "where", "verdict", "found", "what to do")
_COLOURS = {Verdict.FINE: "green", Verdict.WARNING: "yellow", Verdict.REFUSED: "red"}


def run_preflight(settings: Settings, switches: Mapping[str, str]) -> bool:
    """Looks at the cluster that this process has joined, and prints what it finds. Returns whether it may serve."""
    findings = check_everything(settings, switches)
    show_findings(findings)
    return may_serve(findings)


def check_everything(settings: Settings, switches: Mapping[str, str] | None) -> list[Finding]:
    """At this machine, and with `switches` at every node of the cluster that this process has joined."""
    catalog = catalogs.load(settings)
    memory_findings = [*check_gpu_memory(settings, catalog), *check_pipelines(settings, catalog)]
    if switches is None:
        return [*memory_findings, *together(run_checks(_check_request(settings, None, None), "here"))]

    shared_key = asyncio.run(write_shared_object(settings))
    try:
        return [*memory_findings, *together(ask_nodes(_check_request(settings, switches, shared_key), switches))]
    finally:
        if shared_key is not None:
            asyncio.run(delete_shared_object(settings, shared_key))


def may_serve(findings: Sequence[Finding]) -> bool:
    return not any(each.verdict is Verdict.REFUSED for each in findings)


def show_findings(findings: Sequence[Finding]) -> None:
    grid = Table(*COLUMNS, box=None)
    for each in findings:
        verdict = Text(each.verdict.value, style=_COLOURS[each.verdict])
        grid.add_row(each.what, each.where, verdict, Text(each.message), Text(each.remedy))
    console = Console()
    console.print(grid) if console.is_terminal else Console(width=1000).print(grid)
    count = Counter(each.verdict for each in findings)
    console.print(", ".join(f"{count[verdict]} {verdict.value}" for verdict in Verdict))


def _check_request(settings: Settings, switches: Mapping[str, str] | None, shared_key: str | None) -> CheckRequest:
    return CheckRequest(
        BoundSettings.from_settings(settings),
        switches,
        required_checkpoints(settings, catalogs.load(settings)),
        installed_release(),
        shared_key,
        settings.network.proxy,
    )


_CLUSTER_WITHIN_S: Final = 8.0
"""For all of them together: the rest of ten seconds is for what is asked here."""


def ask_nodes(request: CheckRequest, switches: Mapping[str, str]) -> list[Finding]:
    """Within some eight seconds; who has not answered by then is said to."""
    processes = _processes(tuple(switches))
    nodes = _nodes(request)
    waiting: dict[Any, str] = {**processes, **nodes}
    done, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=_CLUSTER_WITHIN_S)
    done_refs = set(done)
    findings: list[Finding] = []
    # That a busy node is slow says nothing against it; that nobody at all was looked at leaves everything open.
    late = warning if done_refs & set(nodes) else refusal
    for answer, where in waiting.items():
        if answer not in done_refs:
            remedy = "is it busy, or full? gen-serve check looks again, deploy --unchecked does not look"
            findings.append(late("answer", where, f"none within {_CLUSTER_WITHIN_S:g} s", remedy))
            continue
        try:
            reply: Any = ray.get(answer)
        except RayError as problem:
            remedy = "install the same release of the service on every node"
            findings.append(refusal("answer", where, str(problem).strip().splitlines()[-1], remedy))
            continue
        findings += switch_findings(where, reply, switches) if answer in processes else reply
    return findings


def _nodes(request: CheckRequest) -> dict[Any, str]:
    task: Any = ray.remote(num_cpus=0, max_retries=0)(run_checks)
    calls = {}
    for each in ray.nodes():
        if each["Alive"]:
            there = NodeAffinitySchedulingStrategy(each["NodeID"], soft=False)
            where = f"node {each['NodeManagerAddress']}"
            here = tuple(one for one in request.checkpoints if one.fits(each["Resources"]))
            calls[task.options(scheduling_strategy=there).remote(replace(request, checkpoints=here), where)] = where
    return calls


def _processes(names: tuple[str, ...]) -> dict[Any, str]:
    """The controller and the proxies, where Serve runs; replicas have the environment of their nodes."""
    return {actor.__ray_call__.remote(_read, names): where for where, actor in list_serve_actors(_CLUSTER_WITHIN_S)}


def _read(_: object, names: tuple[str, ...]) -> dict[str, str | None]:
    return read_switches(names)
