from __future__ import annotations

from contextlib import ExitStack

import pytest

from serve_app.finetunes.places import Places
from serve_app.finetunes.refusals import TooMany


def take(stack: ExitStack, places: Places, project: str, organization: str) -> None:
    stack.enter_context(places.one(project, organization))


def refusal(places: Places, project: str, organization: str) -> str:
    with pytest.raises(TooMany) as refused, places.one(project, organization):
        pass
    return str(refused.value)


def test_a_project_has_one_place() -> None:
    places = Places(4)
    with places.one("p", "a"):
        assert "This project" in refusal(places, "p", "a")
        with places.one("q", "a"):
            pass
    with places.one("p", "a"):
        pass


def test_an_organization_has_half_of_the_places_however_many_projects_it_has() -> None:
    places = Places(5)
    with ExitStack() as stack:
        for project in ("p", "q"):
            take(stack, places, project, "a")
        assert "This organization uploads 2" in refusal(places, "r", "a")
        take(stack, places, "s", "b")
    take(stack := ExitStack(), places, "r", "a")
    stack.close()


def test_all_places_are_given_and_come_back() -> None:
    places = Places(4)
    for _ in range(3):
        with ExitStack() as stack:
            for n in range(4):
                take(stack, places, f"p{n}", f"organization {n}")
            assert "Other tuned models" in refusal(places, "q", "b")


def test_a_place_comes_back_whatever_became_of_the_upload() -> None:
    places = Places(2)
    for _ in range(3):
        with pytest.raises(RuntimeError), places.one("p", "a"):
            raise RuntimeError
