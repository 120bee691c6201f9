"""A run can be had again: what it does follows from its seed alone."""

from __future__ import annotations

from itertools import islice

from chaos.faults import FAULTS
from chaos.receivers import BEHAVIOURS
from chaos.schedule import Manner, canaries, faults, offers


def test_one_seed_is_one_schedule() -> None:
    for seed in (1, 2):
        assert offers(seed, 200, 60.0) == offers(seed, 200, 60.0)
        assert list(islice(faults(seed, list(FAULTS)), 90)) == list(islice(faults(seed, list(FAULTS)), 90))
        assert list(islice(canaries(seed), 20)) == list(islice(canaries(seed), 20))


def test_another_seed_is_another_schedule() -> None:
    assert offers(1, 200, 60.0) != offers(2, 200, 60.0)
    names = [[name for name, _ in islice(faults(seed, list(FAULTS)), len(FAULTS))] for seed in (1, 2)]
    assert names[0] != names[1]


def test_in_which_order_faults_are_named_changes_nothing() -> None:
    names = list(FAULTS)
    assert list(islice(faults(3, names), 90)) == list(islice(faults(3, names[::-1]), 90))


def test_every_fault_happens_before_one_happens_again() -> None:
    names = [name for name, _ in islice(faults(5, list(FAULTS)), 3 * len(FAULTS))]
    for start in range(0, len(names), len(FAULTS)):
        assert set(names[start : start + len(FAULTS)]) == set(FAULTS)


def test_offers_are_of_every_kind_and_in_order() -> None:
    made = offers(1, 400, 60.0)
    assert len(made) == 400
    assert [offer.at_s for offer in made] == sorted(offer.at_s for offer in made)
    assert all(0 <= offer.at_s <= 60 for offer in made)
    assert {offer.hook for offer in made} == {"", *BEHAVIOURS}
    assert {offer.manner for offer in made} == set(Manner)
    assert len({offer.idempotency_key for offer in made}) == 400
