"""The adapters in memory, read from the object store when a job first asks for them."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from obstore.exceptions import BaseError
from torch import nn

from deployments.adapters.weights import AdapterError, AdapterWeights, read_weights
from deployments.contract.job import Adapter
from deployments.contract.objects import ObjectStore
from deployments.engine.backend import JobError, Unavailable


class AdapterCache:
    """The adapters that a replica holds, the one unused for longest going first. Used from any thread.

    Pictures under way keep what they use: an adapter that has gone from here is freed with the last of them.
    """

    def __init__(self, transformer: nn.Module, store: ObjectStore, max_resident: int) -> None:
        """Raises ValueError for a cache that could hold none."""
        if max_resident < 1:
            raise ValueError("max_resident must be at least 1")
        self._transformer = transformer
        self._store = store
        self._max_resident = max_resident
        self._resident: OrderedDict[str, AdapterWeights] = OrderedDict()
        self._lock = Lock()

    @property
    def resident(self) -> list[str]:
        """Ids, the one unused for longest first."""
        return list(self._resident)

    def get(self, adapter: Adapter) -> AdapterWeights:
        """Loads what is not here. Raises JobError for a file that is gone or no adapter, Unavailable."""
        with self._lock:
            weights = self._resident.get(adapter.id)
        if weights is None:
            weights = self._load(adapter.key)
        with self._lock:
            weights = self._resident.setdefault(adapter.id, weights)  # another thread may have been as quick
            self._resident.move_to_end(adapter.id)
            while len(self._resident) > self._max_resident:
                self._resident.popitem(last=False)
        return weights

    def _load(self, key: str) -> AdapterWeights:
        try:
            return read_weights(self._store.get_blocking(key), self._transformer)
        except FileNotFoundError:
            raise JobError("the tuned model is no longer available") from None
        except AdapterError as error:
            raise JobError(f"the tuned model can't be used: {error}") from error
        except (BaseError, OSError) as error:
            raise Unavailable(str(error)) from error
