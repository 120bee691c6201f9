"""Attacks a running service as a hostile client, and checks that a bystander is still served.

    make attack                                             a few thousand attacks, then a table
    make attack URL=http://127.0.0.1:8000 ATTACK="--operator-key .gen/operator-key"
    python -m attack --count 500 --seed 7 --families json images

Only services on this machine's loopback interface are attacked. An attack counts as failed if the service breaks,
leaks internals, accepts invalid requests, or takes too long (`wire.py`). `corpus.yaml` has the payloads.
The exit code is 1 if an attack failed or the bystander was not served.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from attack import families
from attack.target import Target, open_target, start_service, watch_bystander
from attack.wire import NotLocal

SERVED_S: Final = 15.0
"""Timeout of the bystander's requests."""
FAMILIES: Final[dict[str, tuple[Any, float, int]]] = {
    "urls": (families.urls, 0.3, 1),  # one at a time, so that each forbidden request has a known cause
    "json": (families.mutate, 0.45, 4),
    "images": (families.images, 0.15, 4),
    "videos": (families.videos, 0.05, 4),
    "slow": (families.slow, 0.05, 4),
}
"""Generator, share of all attacks, and concurrency of each family."""


def attack(target: Target, names: Sequence[str], seed: int, count: int) -> list[str]:
    """Runs family after family and prints a line for each. Returns the failures."""
    failed: list[str] = []
    total = sum(FAMILIES[name][1] for name in names)
    for name in names:
        make, weight, threads = FAMILIES[name]
        attacks = list(make(target, seed, max(1, round(count * weight / total))))
        start, failures = time.monotonic(), list[str]()
        with watch_bystander(target, SERVED_S) as bystander, ThreadPoolExecutor(threads) as pool:
            for each, wrong in zip(attacks, pool.map(lambda each: each.run(target), attacks), strict=True):
                failures += [f"{name} --seed {seed} --count {count} | {each.name} | {'; '.join(wrong)}"] * bool(wrong)
        failures += [f"{name} | the bystander was not served: {error}" for error in bystander.errors]
        if target.http.get("/healthz").status_code != 200:
            failures.append(f"{name} | the service is unhealthy")
        took, worst = time.monotonic() - start, bystander.worst_s
        summary = f"{len(attacks):>6} attacks {len(failures):>4} failures {took:>5.0f} s"
        print(
            f"{name:<9} {summary}, the bystander waited {worst:.1f} s at most", *failures, sep="\nFAILED ", flush=True
        )
        failed += failures
    return failed


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stops the service on the way out
    parser = argparse.ArgumentParser(
        prog="python -m attack", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="running service on this machine's loopback interface; default: start one")
    parser.add_argument(
        "--operator-key", type=Path, default=Path(".gen/operator-key"), help="file of the operator's key, for --url"
    )
    parser.add_argument("--count", type=int, default=5000, help="approximate number of attacks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    options = parser.parse_args()
    with ExitStack() as stack:
        url, operator = options.url, options.operator_key
        if not url:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
            url = stack.enter_context(start_service(folder, families.REPOSITORY)).base_url
            operator = folder / "data" / "operator-key"
        try:
            target = stack.enter_context(open_target(url, operator.read_text().strip(), proxied=True))
        except NotLocal as refusal:
            parser.error(str(refusal))
        sys.exit(bool(attack(target, options.families, options.seed, options.count)))


if __name__ == "__main__":
    main()
