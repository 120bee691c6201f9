"""How large a batch should be: what a step of it costs, and what fits into memory.

Three things bound a batch. *What pays*: all pictures of a step share its fixed cost, so they join until that is but a
small share of it. *What is wanted*: a step's predicted time, if there is a goal for it, as pictures join and leave, are
cancelled and make way between steps only. *What fits*: tokens, found by running out of memory. All of it is used from
the engine's loop thread alone.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from deployments.engine.cost_model import CostModel, StepCost

FIXED_SHARE: Final = 0.02
"""No more pictures join a step whose fixed cost is no more of it than this: they could make it cheaper by no more."""
PATIENCE: Final = 200
"""Batches as large as memory seems to allow after which a larger one is tried."""
GROWTH: Final = 1.1
"""By how much larger."""
FEW: Final = 2
"""Until the model is telling, so many pictures at most go together, to learn."""
LOOK_EVERY: Final = 16
"""Steps after which one of about twice the size is taken, lest a mistake about what pays lasts."""
WORTH_TELLING: Final = 200
"""Steps after which another replica may begin with what was learned from them."""
MAX_KEYS: Final = 4096
"""Kinds of steps remembered; past that the one unused for longest is forgotten and would be learned anew."""
NOTHING_KNOWN: Final[Mapping[str, StepCost]] = MappingProxyType({})


class Member(Protocol):
    """A picture in a step."""

    @property
    def key(self) -> Hashable:
        """Names the kind."""
        ...

    @property
    def tokens(self) -> int: ...


M = TypeVar("M", bound=Member)


class TokenLimit:
    """The most tokens believed to fit into memory.

    What failed twice, or nearly as much, is not tried again: an edge costs two failures in all and not one every
    `PATIENCE` batches.
    """

    def __init__(self) -> None:
        self.tokens = math.inf
        self._ceiling = math.inf
        self._failed: list[int] = []
        self._full = 0

    def fitted(self, tokens: int) -> None:
        if tokens * GROWTH < self.tokens or self.tokens >= self._ceiling:
            return
        self._full += 1
        if self._full >= PATIENCE:
            self._full = 0
            self.tokens = min(self.tokens * GROWTH, self._ceiling)

    def failed(self, tokens: int) -> None:
        if any(tokens < GROWTH * failed and failed < GROWTH * tokens for failed in self._failed):
            self._ceiling = min(self._ceiling, tokens / GROWTH)
        self._failed.append(tokens)
        self.tokens = min(self._ceiling, tokens // 2)
        self._full = 0


class StepCosts:
    """What steps cost, by the kind of their members, and who may take one together."""

    def __init__(
        self, max_batch: int, *, goal_s: float | None = None, known: Mapping[str, StepCost] = NOTHING_KNOWN
    ) -> None:
        """`max_batch` members at most take a step together, and no more than `goal_s` seconds' worth of them: but
        always one. `known` is what another replica `learned`. Raises ValueError for a bound that allows none."""
        if max_batch < 1 or (goal_s is not None and goal_s <= 0):
            raise ValueError("max_batch must be at least one, a goal for steps above 0")
        self._max_batch = max_batch
        self._goal_s = math.inf if goal_s is None else goal_s
        self._known = known
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()

    def learned(self) -> dict[str, StepCost]:
        """What was measured here, by the names of kinds, for another replica to begin with. From any thread."""
        return {
            str(key): kind.model.cost
            for key, kind in list(self._kinds.items())
            if kind.model.cost is not None and kind.model.measured and kind.model.steps >= WORTH_TELLING
        }

    def observe(self, batch: Sequence[Member], seconds: float) -> None:
        """A step of these members, all of one kind, took so long."""
        kind, (tokens, squares) = self._kind(batch[0].key), _amount(batch)
        kind.model.observe(tokens, squares, seconds)
        kind.room.fitted(tokens)

    def shrink(self, batch: Sequence[Member]) -> None:
        """A step of these members ran out of memory. One alone changes nothing: no other batch would have helped it."""
        if len(batch) > 1:
            self._kind(batch[0].key).room.failed(_amount(batch)[0])

    def alone(self, member: Member) -> float | None:
        """Seconds of a step of this member alone; None as long as nothing of its kind was measured."""
        kind = self._found(member.key)
        cost = kind.model.cost if kind else None
        return None if cost is None else cost.seconds(*_amount([member]))

    def at_least(self, member: Member) -> float | None:
        """Seconds that no step of this member takes less than; None unless enough was measured here to be sure."""
        kind = self._found(member.key)
        return kind.model.at_least(*_amount([member])) if kind else None

    def together(self, ranked: Sequence[M]) -> list[M]:
        """Of members of one kind, the best first: those that should take the next step. Empty only if there are none.

        Now and then more than pay, to see whether they would.
        """
        kind = self._found(ranked[0].key) if ranked else None
        looking = kind is not None and kind.model.steps % LOOK_EVERY == 0
        return self._chosen(ranked, FIXED_SHARE / FEW if looking else FIXED_SHARE, FEW if looking else 1)

    def settled(self, ranked: Sequence[M]) -> list[M]:
        """Those that pay, by all that was seen."""
        return self._chosen(ranked, FIXED_SHARE, 1)

    def _chosen(self, ranked: Sequence[M], share: float, at_least: int) -> list[M]:
        """Members join while the fixed cost is more than `share` of the step, or they are fewer than `at_least`."""
        chosen = list(ranked[:1])
        kind = self._found(ranked[0].key) if ranked else None
        cost = kind.model.cost if kind else None
        if kind is None or cost is None:
            return chosen
        telling = kind.model.telling
        for member in ranked[1:]:
            pays = cost.fixed > share * cost.seconds(*_amount(chosen)) or len(chosen) < at_least or not telling
            if len(chosen) >= self._max_batch or not pays:
                break
            tokens, squares = _amount([*chosen, member])
            wanted = cost.seconds(tokens, squares) <= self._goal_s if telling else len(chosen) < FEW
            if tokens <= kind.room.tokens and wanted:
                chosen.append(member)
        return chosen

    def _found(self, key: Hashable) -> _Kind | None:
        """None for a kind of which nothing is known."""
        return self._kind(key) if key in self._kinds or str(key) in self._known else None

    def _kind(self, key: Hashable) -> _Kind:
        kind = self._kinds.pop(key, None) or _Kind(self._known.get(str(key)))
        self._kinds[key] = kind
        if len(self._kinds) > MAX_KEYS:
            self._kinds.popitem(last=False)
        return kind


class _Kind:
    def __init__(self, known: StepCost | None) -> None:
        self.model = CostModel(known)
        self.room = TokenLimit()


def _amount(members: Sequence[Member]) -> tuple[int, int]:
    """Tokens of all, and the sum of each one's squared."""
    tokens = [member.tokens for member in members]
    return sum(tokens), sum(each * each for each in tokens)
