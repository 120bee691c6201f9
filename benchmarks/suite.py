"""All benchmarks by name. A module is imported when its benchmark is wanted: some bring torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from benchmarks.benchmark import Benchmark

MODULES: Final = {
    "rest": "rest",
    "handoff": "handoff",
    "ingress": "ingress",
    "tasks": "tasks",
    "store": "store",
    "waiting": "waiting",
    "webhooks": "webhooks",
    "tenants": "tenants",
    "uploads": "uploads",
    "overload": "overload",
    "overhead": "overhead",
    "batching": "batching",
    "packing": "packing",
    "clips": "clips",
    "peers": "peers.comparison",
}
"""In the order in which they are run: short before long."""


def benchmark(name: str) -> Benchmark[Any]:
    """Raises ValueError, which names all there are."""
    if name not in MODULES:
        raise ValueError(f"no benchmark {name!r}; there are {', '.join(MODULES)}")
    return import_module(f"benchmarks.{MODULES[name]}").BENCHMARK
