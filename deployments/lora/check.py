"""The check of an uploaded LoRA against its base model, as a process of its own.

    python -m deployments.lora.check --cpu-s SECONDS --memory-mb MIB [--stock] CHECKPOINT FILE [REVISION]

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
from typing import TYPE_CHECKING, Any

from deployments.checkpoint_files import configuration_folder, read_index
from deployments.contract.model import FAMILIES
from deployments.lora.formats import DENOISERS, ENCODERS, AdapterError, components_of, read_header

if TYPE_CHECKING:
    from torch import nn

    from deployments.lora.weights import Networks


def check(
    checkpoint: str,
    file: Path,
    revision: str | None = None,
    begin: Callable[[], None] = lambda: None,
    *,
    stock: bool = False,
) -> dict[str, int | str]:
    """Returns the verdict; calls `begin` once everything is there that the check of any file needs.

    `stock`: diffusers' own pipeline serves the checkpoint, also where a native family could.
    """
    try:
        with file.open("rb") as stream:
            header = read_header(stream)  # costs next to nothing; what is imported now takes seconds
        components = components_of(key for key in header if key != "__metadata__")
        from deployments.lora.weights import read_weights

        networks = outline(checkpoint, revision, encoders=bool(components & {*ENCODERS}), stock=stock)
        begin()
        weights = read_weights(file.read_bytes(), networks)
    except AdapterError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": "its check takes too much memory"}
    return {"rank": weights.rank, "layers": len(weights.layers)}


def outline(checkpoint: str, revision: str | None = None, *, encoders: bool = False, stock: bool = False) -> Networks:
    """Returns the checkpoint's networks that adapters may change, without weights."""
    folder = configuration_folder(checkpoint, revision)
    index = read_index(folder)
    is_native = not stock and index.get("_class_name") in FAMILIES
    names = (*DENOISERS, *ENCODERS) if encoders and not is_native else DENOISERS
    networks = {name: _network(folder / name, index.get(name)) for name in names if (folder / name).is_dir()}
    if not networks.keys() & {*DENOISERS}:
        raise AdapterError("its model takes no tuned models: it has neither a transformer nor a UNet")
    return networks


def _network(folder: Path, entry: Any) -> nn.Module:
    import diffusers
    import torch

    config = json.loads((folder / "config.json").read_text())
    with torch.device("meta"):
        if "_class_name" in config:
            library = diffusers if hasattr(diffusers, config["_class_name"]) else diffusers.pipelines
            kind = getattr(getattr(library, entry[0], library), config["_class_name"])
            return kind.from_config(config)
        import transformers

        kind = getattr(transformers, entry[1])
        return kind(kind.config_class.from_pretrained(folder))


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
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("checkpoint")
    parser.add_argument("file", type=Path)
    parser.add_argument("revision", nargs="?")
    arguments = parser.parse_args()

    def begin() -> None:
        import torch

        torch.set_num_threads(1)  # each further one takes memory for its stack
        confine(arguments.cpu_s, arguments.memory_mb)
        print(json.dumps({"begun": True}), flush=True)

    result = check(arguments.checkpoint, arguments.file, arguments.revision, begin, stock=arguments.stock)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
