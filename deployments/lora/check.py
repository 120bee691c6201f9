"""The check of an uploaded LoRA against its base model, as a process of its own.

    python -m deployments.lora.check --cpu-s SECONDS --memory-mb MIB [--stock] CHECKPOINT FILE [REVISION]

Prints `{"begun": true}` before it reads the tensors, and then `{"rank": …, "layers": …}` or `{"error": "…"}` with a
reason for the client, a line each. From the first line on, the kernel limits its processor time, which ends it, and its
memory. It reads the configuration of the base, not its weights.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deployments.checkpoint_files import configuration_folder, read_index
from deployments.contract.model import FAMILIES
from deployments.lora.formats import DENOISERS, ENCODERS, AdapterError, find_components, read_header

_DOWN: Final = re.compile(r"\.lora_(A|down)\b")

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
    """Returns the verdict. Calls `begin` after the preparation that is the same for any file.

    `stock`: diffusers' own pipeline serves the checkpoint, even if a native family could.
    """
    try:
        with file.open("rb") as stream:
            header = read_header(stream)  # before imports that take seconds
        if not checkpoint:  # a workflow's own base, which this service does not know
            return _describe(header)
        components = find_components(key for key in header if key != "__metadata__")
        from deployments.lora.weights import read_weights

        networks = outline(checkpoint, revision, encoders=bool(components & {*ENCODERS}), stock=stock)
        begin()
        weights = read_weights(file.read_bytes(), networks)
    except AdapterError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": "its check takes too much memory"}
    return {"rank": weights.rank, "layers": len(weights.layers)}


def _describe(header: Mapping[str, Any]) -> dict[str, int | str]:
    """Returns rank and number of layers by the header alone. Raises AdapterError for a file without LoRA layers."""
    ranks = [min(header[key]["shape"][:2]) for key in header if _DOWN.search(key) and header[key].get("shape")]
    if not ranks:
        raise AdapterError("it has no LoRA layers")
    return {"rank": max(ranks), "layers": len(ranks)}


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
            cls = getattr(getattr(library, entry[0], library), config["_class_name"])
            return cls.from_config(config)
        import transformers

        cls = getattr(transformers, entry[1])
        return cls(cls.config_class.from_pretrained(folder))


def confine(cpu_s: int, memory_mb: int) -> None:
    """Limits the further processor time and memory of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(usage.ru_utime + usage.ru_stime) + cpu_s
    page = resource.getpagesize()
    data = int(Path("/proc/self/statm").read_text().split()[5]) * page + memory_mb * 2**20
    # Not RLIMIT_AS: torch maps many times the memory that it uses.
    for name, limit in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_DATA, data), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(name)
        resource.setrlimit(name, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


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
