"""Torch's errors as the engine's exceptions."""

from __future__ import annotations

import pytest
import torch

from deployments.backend import DeviceBroken, OutOfMemory
from deployments.families.device_errors import translate_device_errors


def translate(error: Exception) -> None:
    with translate_device_errors():
        raise error


RUNTIME, TORCH = RuntimeError, torch.AcceleratorError


@pytest.mark.parametrize(
    ("kind", "message", "raised"),
    [
        (RUNTIME, "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa)`", DeviceBroken),
        (RUNTIME, "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", DeviceBroken),
        (RUNTIME, "CUDA error: device-side assert triggered", DeviceBroken),
        (TORCH, "CUDA error: unspecified launch failure", DeviceBroken),
        (TORCH, "CUDA error: out of memory", OutOfMemory),
        (RUNTIME, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", OutOfMemory),
        (RUNTIME, "DefaultCPUAllocator: can't allocate memory: you tried to allocate 400000000000 bytes", OutOfMemory),
        (RUNTIME, "Expected all tensors to be on the same device, but got index is on cpu (CUDA error: none)", None),
        (RUNTIME, "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED", None),
        (TORCH, "CUDA error: invalid configuration argument", None),
        (RUNTIME, "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx`", None),
        (ValueError, "CUDA error: so says the prompt", None),
    ],
)
def test_torch_errors_are_translated(kind: type[Exception], message: str, raised: type[Exception] | None) -> None:
    error = kind(message)
    with pytest.raises(raised or kind) as caught:
        translate(error)
    if raised is not OutOfMemory:
        assert (caught.value.__cause__ if raised else caught.value) is error


def test_real_allocation_failure_is_out_of_memory() -> None:
    with pytest.raises(OutOfMemory), translate_device_errors():
        torch.empty(2**52, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("fraction", "others_hold", "crowded"), [(1.0, 0, False), (1.0, 6, True), (0.75, 18, False), (0.75, 24, True)]
)
@pytest.mark.parametrize(
    "error", [OutOfMemory(), torch.OutOfMemoryError("CUDA out of memory")], ids=["beside", "torch"]
)
def test_out_of_memory_empties_the_cache(
    error: Exception, fraction: float, others_hold: int, crowded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's cached memory is released, and memory of other processes is reported."""
    emptied: list[bool] = []
    own, context, total = 20 * 2**30, 2**29, 80 * 2**30
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: own)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (total - own - context - others_hold * 2**30, total))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda: fraction)
    with pytest.raises(OutOfMemory) as raised:
        translate(error)
    assert emptied == [True]
    assert raised.value.shared_gpu_memory == crowded
