"""Who may upload now: each upload is a file on this process' disk, and nobody's may keep others' out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from serve_app.finetunes.refusals import TooMany


class Places:
    def __init__(self, places: int) -> None:
        """A project has one of them at a time, an organization half."""
        self._places = places
        self._of_organization = max(1, places // 2)
        self._projects: set[str] = set()
        self._organizations: Counter[str] = Counter()

    @contextmanager
    def one(self, project: str, organization: str) -> Iterator[None]:
        """Raises TooMany."""
        if project in self._projects:
            raise TooMany("This project uploads a tuned model already; try again when that has ended")
        most = self._of_organization
        if self._organizations[organization] >= most:
            raise TooMany(
                f"This organization uploads {most} tuned models already, as many as it may at a time; try again shortly"
            )
        if len(self._projects) >= self._places:
            raise TooMany("Other tuned models are being uploaded; try again shortly")
        self._projects.add(project)
        self._organizations[organization] += 1
        try:
            yield
        finally:
            self._projects.remove(project)
            self._organizations -= Counter((organization,))
