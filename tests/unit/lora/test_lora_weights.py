"""Reading, checking and caching of LoRA files."""

from __future__ import annotations

import io
import json
import pickle
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from support.adapters import adapted_layers, adapter_file, outline_of, random_matrices
from torch import Tensor, nn

from deployments.backend import JobError
from deployments.contract.job import Adapter
from deployments.contract.objects import ObjectStore
from deployments.lora import weights
from deployments.lora.check import check
from deployments.lora.formats import MAX_HEADER_BYTES, MAX_TENSORS, read_header
from deployments.lora.weights import AdapterCache, AdapterError, read_weights


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        ({"r": 2, "lora_alpha": 4}, 2.0),
        ({"lora_alpha": 4, "use_rslora": True}, 4 / 2**0.5),
        ({"lora_alpha": 4, "rank_pattern": {"x": 2}, "alpha_pattern": {"attn.to_q": 6}}, 3.0),
    ],
)
def test_layer_scale_equals_peft(transformer: nn.Module, config: dict[str, object], scale: float) -> None:
    """Covers rsLoRA, and patterns that name the end of a layer's name."""
    metadata = {"lora_adapter_metadata": json.dumps({f"transformer.{k}": v for k, v in config.items()})}
    weights = read_weights(adapter_file(random_matrices(transformer), metadata), {"transformer": transformer})
    assert [layer.scale for [layer] in weights.layers.values()] == pytest.approx([scale] * 3)


def test_adapter_is_copied_to_the_device_at_once(transformer: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each copy waits for the step in progress."""
    copies = list[torch.Tensor]()
    to = Tensor.to

    def record_copy(tensor: Tensor, *where: Any, **how: Any) -> Tensor:
        copies.extend([tensor] if how.get("non_blocking") else [])
        return to(tensor, *where, **how)

    monkeypatch.setattr(Tensor, "to", record_copy)
    weights = read_weights(adapter_file(random_matrices(transformer)), {"transformer": transformer})
    assert [tensor.numel() for tensor in copies] == [
        sum(m.numel() for [x] in weights.layers.values() for m in x.tensors)
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pickle.dumps({"transformer.x.lora_A.weight": 1}), "not a safetensors file"),
        (adapter_file({}), "holds no matrices"),
        (adapter_file({"transformer.norm.weight": torch.zeros(3)}), "not a LoRA"),
        (adapter_file({"transformer.none.lora_A.weight": torch.zeros(2, 3)}), "half of none is missing"),
    ],
)
def test_file_without_the_bases_matrices_is_refused(transformer: nn.Module, data: bytes, reason: str) -> None:
    with pytest.raises(AdapterError, match=reason):
        read_weights(data, {"transformer": transformer})


@pytest.mark.parametrize(
    ("change", "metadata"),
    [
        ({".alpha": torch.ones(3)}, None),
        ({".lora_A.weight": torch.zeros(0, 128), ".lora_B.weight": torch.zeros(128, 0)}, None),
        ({".lora_A.weight": torch.tensor(1.0)}, None),
        ({".lora_A.weight": torch.full((2, 128), torch.nan)}, None),
        ({}, {"lora_adapter_metadata": "no JSON"}),
        ({}, {"lora_adapter_metadata": "[" * 100_000}),
        ({}, {"lora_adapter_metadata": '{"lora_alpha": 1e999}'}),
        ({".alpha": torch.tensor(torch.inf)}, None),
        ({".lora_A.weight": torch.ones(2, 128, dtype=torch.complex64)}, None),
        ({".lora_A.weight": torch.ones(2**12, 128), ".lora_B.weight": torch.ones(128, 2**12)}, None),
    ],
)
def test_damaged_file_is_an_adapter_error(
    transformer: nn.Module, change: dict[str, Tensor], metadata: dict[str, str] | None
) -> None:
    first = f"transformer.{adapted_layers(transformer)[0]}"
    damaged = random_matrices(transformer) | {first + suffix: tensor for suffix, tensor in change.items()}
    with pytest.raises(AdapterError):
        read_weights(adapter_file(damaged, metadata), {"transformer": transformer})


NAME = "transformer.single_transformer_blocks.0.attn.to_q.lora_A.weight"


def encode_header(entries: dict[str, Any], data: bytes = b"") -> bytes:
    """Returns a file with these entries in its header."""
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header + data


def tensor_entry(shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    "data",
    [
        encode_header(
            {NAME: tensor_entry([4, 128], 0, 2048), NAME.replace("_A", "_B"): tensor_entry([128, 4], 0, 2048)},
            bytes(2048),
        ),
        encode_header({NAME: tensor_entry([4, 128], 2**40, 2**40 + 2048)}),
        encode_header({NAME: tensor_entry([2**32, 2**32], 0, 0)}),
        encode_header({NAME: tensor_entry([2**63, 0], 0, 0)}),
        encode_header({NAME: tensor_entry([2**62, 0], 0, 0), NAME.replace("_A", "_B"): tensor_entry([0, 2**62], 0, 0)}),
        encode_header({NAME: tensor_entry([-1, 128], 0, 2048)}, bytes(2048)),
        encode_header({NAME: tensor_entry([1] * 100_000, 0, 4)}, bytes(4)),
        encode_header({"x" * 1_000_000: tensor_entry([0], 0, 0)}),
    ],
    ids=[
        *("overlapping", "beyond-its-end", "overflowing", "overflowing-but-empty"),
        *("vast-but-empty", "negative", "many-dimensions", "long-name"),
    ],
)
def test_hostile_file_is_refused_in_few_words(transformer: nn.Module, data: bytes) -> None:
    with pytest.raises(AdapterError) as refused:
        read_weights(data, {"transformer": transformer})
    assert len(str(refused.value)) < 300


def test_check_describes_or_refuses_an_adapter(transformer: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "adapter.safetensors"
    path.write_bytes(adapter_file(random_matrices(transformer, rank=4)))
    assert check("bundled/flux3", path) == {"rank": 4, "layers": 3}
    refused = check("bundled/flux", path)
    assert list(refused) == ["error"]
    assert "layer" in str(refused["error"])


@pytest.mark.filterwarnings("ignore:`FluxPosEmbed` is deprecated:FutureWarning")
def test_only_stock_pipelines_take_tuned_text_encoders(folder: Path, tmp_path: Path) -> None:
    outline_of("flux-schnell", folder)
    layer, path = "lora_te1_text_model_encoder_layers_0_mlp_fc1", tmp_path / "adapter.safetensors"
    halves = {"lora_down": torch.ones(2, 16), "lora_up": torch.ones(32, 2)}
    path.write_bytes(adapter_file({f"{layer}.{half}.weight": tensor for half, tensor in halves.items()}))
    assert check(str(folder / "flux-schnell"), path, stock=True) == {"rank": 2, "layers": 1}
    assert "it tunes a text encoder" in str(check(str(folder / "flux-schnell"), path)["error"])


def file(header: bytes, length: int | None = None) -> io.BytesIO:
    return io.BytesIO(struct.pack("<Q", len(header) if length is None else length) + header)


@pytest.mark.parametrize("length", [MAX_HEADER_BYTES + 1, 2**64 - 1])
def test_long_header_is_not_read(length: int) -> None:
    stream = file(b"{}", length)
    with pytest.raises(AdapterError, match="longer than 8 MiB"):
        read_header(stream)
    assert stream.tell() == 8


@pytest.mark.parametrize("header", [b"", b"[]", b"5", b"{", b"\xff", b'{"a":' * 1_000_000, b"[" * 1_000_000])
def test_invalid_header_is_refused(header: bytes) -> None:
    with pytest.raises(AdapterError, match="not a safetensors file"):
        read_header(file(header))
    for cut in (b"", b"\x01", struct.pack("<Q", 100) + b"{"):
        with pytest.raises(AdapterError, match="not a safetensors file"):
            read_header(io.BytesIO(cut))


def test_number_of_tensors_is_limited() -> None:
    many = {f"t{n}": 0 for n in range(MAX_TENSORS)}
    assert len(read_header(file(json.dumps(many).encode()))) == MAX_TENSORS
    with pytest.raises(AdapterError, match="more than 20000 tensors"):
        read_header(file(json.dumps(many | {"one": 0}).encode()))


def fill(store: ObjectStore, transformer: nn.Module) -> ObjectStore:
    store.put_blocking("adapters/a", adapter_file(random_matrices(transformer)), "application/octet-stream")
    return store


def test_adapter_is_cached_for_every_strength(transformer: nn.Module) -> None:
    cache = AdapterCache({"transformer": transformer}, fill(ObjectStore("memory:///"), transformer), limit=1_000_000)
    first = cache.get(Adapter("a", "adapters/a", 1.0))
    assert cache.get(Adapter("a", "adapters/a", 0.5)) is first
    assert cache.stats.bytes == first.nbytes > 0
    with pytest.raises(JobError, match="no longer available"):
        cache.get(Adapter("d", "adapters/d", 1.0))


def test_concurrent_jobs_load_an_adapter_once(transformer: nn.Module) -> None:
    loads, others_wait = list[str](), Event()

    class Slow(ObjectStore):
        def get_blocking(self, key: str) -> bytes:
            loads.append(key)
            assert others_wait.wait(60)
            return super().get_blocking(key)

    cache = AdapterCache({"transformer": transformer}, fill(Slow("memory:///"), transformer), limit=1_000_000)
    with ThreadPoolExecutor(8) as threads:
        futures = [threads.submit(cache.get, Adapter("a", "adapters/a", 1.0)) for _ in range(8)]
        while cache._loading.get("a", (None, 0))[1] < 8:
            pass
        others_wait.set()
        assert len({id(each.result(10)) for each in futures}) == 1
    assert loads == ["adapters/a"]
    assert cache._loading == {}


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUDA error")])
def test_device_error_is_not_blamed_on_the_file(
    transformer: nn.Module, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(layers: object, networks: object) -> None:
        raise error

    monkeypatch.setattr(weights, "_on_device", full)
    store = fill(ObjectStore("memory:///"), transformer)
    with pytest.raises(type(error), match=str(error)):
        AdapterCache({"transformer": transformer}, store, limit=1_000_000).get(Adapter("a", "adapters/a", 1.0))
