"""The check of an uploaded LoRA against its base model, as a process of its own.

    python -m deployments.lora.check --cpu-s SECONDS --memory-mb MIB CHECKPOINT FILE [REVISION]

Prints `{"begun": true}` when it comes to the tensors, and `{"rank": …, "layers": …}` or `{"error": "…"}` with a reason
fit for the client, a line each. What the tensors make it do has bounds that the kernel holds: of a processor's time,
which ends it, and of memory. It reads the base's configuration, not its weights.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from deployments.checkpoint_files import single_file
from deployments.contract.hub_files import TRANSFORMER_CONFIG
from deployments.lora.formats import AdapterError, read_header

if TYPE_CHECKING:
    from torch import nn


def check(
    checkpoint: str, file: Path, revision: str | None = None, begin: Callable[[], None] = lambda: None
) -> dict[str, int | str]:
    """As printed; calls `begin` once everything is there that the check of any file needs."""
    try:
        with file.open("rb") as stream:
            read_header(stream)  # costs next to nothing; what is imported now takes seconds
        from deployments.lora.weights import read_weights

        transformer = _outline(checkpoint, revision)
        begin()
        weights = read_weights(file.read_bytes(), transformer)
    except AdapterError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": "its check takes too much memory"}
    return {"rank": weights.rank, "layers": len(weights.layers)}


def _outline(checkpoint: str, revision: str | None) -> nn.Module:
    """The checkpoint's transformer without weights."""
    import diffusers
    import torch

    file = single_file(checkpoint, TRANSFORMER_CONFIG, revision)
    if not file.is_file():
        raise AdapterError("its model takes no tuned models: only transformers do")
    config = json.loads(file.read_text())
    with torch.device("meta"):
        return getattr(diffusers, config["_class_name"]).from_config(config)


def confine(cpu_s: int, memory_mb: int) -> None:
    """Lets this process take so much more than it has taken until now."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(usage.ru_utime + usage.ru_stime) + cpu_s
    page = resource.getpagesize()
    data = int(Path("/proc/self/statm").read_text().split()[5]) * page + memory_mb * 2**20
    # Not of addresses: what torch maps of its libraries is many times what it uses.
    for limit, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_DATA, data), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(limit)
        resource.setrlimit(limit, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu-s", type=int, required=True)
    parser.add_argument("--memory-mb", type=int, required=True)
    parser.add_argument("checkpoint")
    parser.add_argument("file", type=Path)
    parser.add_argument("revision", nargs="?")
    arguments = parser.parse_args()

    def begin() -> None:
        import torch

        torch.set_num_threads(1)  # each further one takes memory for its stack
        confine(arguments.cpu_s, arguments.memory_mb)
        print(json.dumps({"begun": True}), flush=True)

    print(json.dumps(check(arguments.checkpoint, arguments.file, arguments.revision, begin)))


if __name__ == "__main__":
    main()
