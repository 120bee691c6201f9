"""The adapters in memory, read from the object store when a job first asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock

from obstore.exceptions import BaseError
from torch import nn

from deployments.adapters.weights import AdapterError, AdapterWeights, read_weights
from deployments.byte_cache import ByteCache, CacheFigures
from deployments.contract.job import Adapter
from deployments.contract.objects import ObjectStore
from deployments.engine.backend import JobError, Unavailable
from deployments.side_stream import SideStream


class AdapterCache:
    """The adapters that a replica holds. Used from any thread."""

    def __init__(self, transformer: nn.Module, store: ObjectStore, limit: int) -> None:
        """`limit` bytes of weights are kept beside those in use, and the latest adapter however large it is."""
        self._transformer = transformer
        self._device = next(transformer.parameters()).device
        self._store = store
        self._cache: ByteCache[str, AdapterWeights] = ByteCache(limit, lambda weights: weights.nbytes, at_least=1)
        self._lock = Lock()
        self._turns: dict[str, tuple[Lock, int]] = {}
        """Who loads an adapter now, and how many want it."""

    @property
    def figures(self) -> CacheFigures:
        return self._cache.figures

    def clear(self) -> None:
        self._cache.clear()

    def get(self, adapter: Adapter) -> AdapterWeights:
        """Loads what is not here. Raises JobError for a file that is gone or no adapter, Unavailable."""
        with self._turn(adapter.id):
            return self._cache.made(adapter.id, partial(self._load, adapter.key))

    @contextmanager
    def _turn(self, adapter_id: str) -> Iterator[None]:
        """One after the other: jobs of one adapter come together, and each would load all of it."""
        with self._lock:
            turn, others = self._turns.get(adapter_id, (Lock(), 0))
            self._turns[adapter_id] = turn, others + 1
        try:
            with turn:
                yield
        finally:
            with self._lock:
                _, wanting = self._turns.pop(adapter_id)
                if wanting > 1:
                    self._turns[adapter_id] = turn, wanting - 1

    def _load(self, key: str) -> AdapterWeights:
        try:
            data = self._store.get_blocking(key)
            with SideStream(self._device).beside_the_steps():
                return read_weights(data, self._transformer)
        except FileNotFoundError:
            raise JobError("the tuned model is no longer available") from None
        except AdapterError as error:
            raise JobError(f"the tuned model can't be used: {error}") from error
        except (BaseError, OSError) as error:
            raise Unavailable(str(error)) from error
