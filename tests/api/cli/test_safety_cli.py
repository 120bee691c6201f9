"""The commands that widen and narrow the safety levels of an organization."""

from __future__ import annotations

import pytest
from support.command_line import GenServe, Holder

from deployments.contract.moderation import CATEGORIES
from serve_app.cli.options import ACTOR


def test_an_organization_can_be_approved_for_other_safety_levels(gen_serve: GenServe, acme: str) -> None:
    assert gen_serve("organizations", "approve", acme, "gen-2-max", "3").code == 0
    assert gen_serve("organizations", "approve", acme, "gen-2-max", "-1").code == 2, "-1 looks like an option"
    assert gen_serve("organizations", "approve", acme, "--", "gen-2-max", "-1").code == 0
    assert gen_serve("organizations", "approve", acme, "gen-2-max", "8").code == 2
    assert gen_serve("organizations", "approve", acme, "gen-9", "3").code == 2
    actions = [row[1:4] for row in gen_serve("organizations", "audit", acme).table]
    assert actions[:2] == [[ACTOR, "approve safety", "gen-2-max"]] * 2


def test_an_organization_can_be_held_to_a_level(gen_serve: GenServe, acme: str, holder: Holder) -> None:
    secret = gen_serve("keys", "create", "laptop", "--project", "shop").out.strip()

    def ceilings() -> dict[str, int]:
        caller = holder(secret)
        assert caller is not None
        return dict(caller.ceilings)

    capped = gen_serve("organizations", "cap", acme, "violence", "3")
    assert (capped.code, capped.out) == (0, "acme: violence up to 3\n")
    assert gen_serve("organizations", "cap", acme, "illegal acts", "0").code == 0
    assert ceilings() == {"violence": 3, "illegal acts": 0}
    assert gen_serve("organizations", "cap", acme, "violence", "-1").code == 2, "-1 looks like an option"
    freed = gen_serve("organizations", "cap", acme, "--", "violence", "-1")
    assert (freed.code, freed.out) == (0, "acme: violence up to any level\n")
    assert ceilings() == {"illegal acts": 0}
    assert [row[1:] for row in gen_serve("organizations", "audit", acme, "--limit", "3").table] == [
        [ACTOR, "cap safety", "violence", "tolerance="],
        [ACTOR, "cap safety", "illegal acts", "tolerance=0"],
        [ACTOR, "cap safety", "violence", "tolerance=3"],
    ]


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_category_can_be_held(gen_serve: GenServe, category: str) -> None:
    assert gen_serve("organizations", "cap", "default", category, "7").out == f"default: {category} up to 7\n"
    assert category in " ".join(gen_serve("organizations", "cap", "--help").out.replace("│", " ").split())
