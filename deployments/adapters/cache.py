"""The adapters in memory, read from the object store when a job first asks for them."""

from __future__ import annotations

from functools import partial

from obstore.exceptions import BaseError
from torch import nn

from deployments.adapters.weights import AdapterError, AdapterWeights, read_weights
from deployments.byte_cache import ByteCache, CacheFigures
from deployments.contract.job import Adapter
from deployments.contract.objects import ObjectStore
from deployments.engine.backend import JobError, Unavailable


class AdapterCache:
    """The adapters that a replica holds. Used from any thread."""

    def __init__(self, transformer: nn.Module, store: ObjectStore, limit: int) -> None:
        """`limit` bytes of weights are kept beside those in use, and the latest adapter however large it is."""
        self._transformer = transformer
        self._store = store
        self._cache: ByteCache[str, AdapterWeights] = ByteCache(limit, lambda weights: weights.nbytes, at_least=1)

    @property
    def figures(self) -> CacheFigures:
        return self._cache.figures

    def clear(self) -> None:
        self._cache.clear()

    def get(self, adapter: Adapter) -> AdapterWeights:
        """Loads what is not here. Raises JobError for a file that is gone or no adapter, Unavailable."""
        return self._cache.made(adapter.id, partial(self._load, adapter.key))

    def _load(self, key: str) -> AdapterWeights:
        try:
            return read_weights(self._store.get_blocking(key), self._transformer)
        except FileNotFoundError:
            raise JobError("the tuned model is no longer available") from None
        except AdapterError as error:
            raise JobError(f"the tuned model can't be used: {error}") from error
        except (BaseError, OSError) as error:
            raise Unavailable(str(error)) from error
