"""Why an upload comes to nothing. Texts are fit for the client."""

from __future__ import annotations


class Refused(ValueError):
    """The file is no tuned model of the base."""


class CheckFailed(Exception):
    """Nothing can be said of the file now: the base's description is out of reach, say."""


class TooMany(Exception):
    """The project has as many tuned models as it may, or too many are being uploaded."""


class TooSlow(Exception):
    """The file did not come in time."""


class OutOfReach(Exception):
    """The object store is away, full or refuses to store or delete a file."""
