"""Why files of the hub could not be fetched, in a line that says what to do about it."""

from __future__ import annotations

import errno
import json
from typing import Final

from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from deployments.contract.hub_files import HubFiles

_TOKEN: Final = "set HF_TOKEN or HF_TOKEN_PATH where it is fetched to a token"
_CORRECT: Final = "correct it in the catalog or the settings"


class NothingThere(Exception):
    """The repository has none of the files."""


def in_words(files: HubFiles, problem: Exception) -> str:
    """The hub's own words are left out: they have addresses in them, which may be signed."""
    match problem:
        case GatedRepoError():
            page = f"{constants.ENDPOINT}/{files.repository}"
            return f"it is gated: accept its terms at {page}, and {_TOKEN} of that account"
        case RepositoryNotFoundError():
            return f"the hub has none of this name, or not for everyone: {_CORRECT}, or {_TOKEN} that may read it"
        case RevisionNotFoundError():
            return f"it has no revision {files.revision}: {_CORRECT}"
        case NothingThere():
            return f"it has no files like {', '.join(files.patterns)}: {_CORRECT}"
        case json.JSONDecodeError():
            return "its index is no JSON: it is broken on the hub, or here"
        case HFValidationError():
            return f"that is no name of a repository on the hub: {_CORRECT}"
        case LocalEntryNotFoundError() if constants.is_offline_mode():
            return "not here, and HF_HUB_OFFLINE is set for this command: fetch with HF_HUB_OFFLINE=0"
        case LocalEntryNotFoundError():
            return f"{constants.ENDPOINT} did not give it ({_cause(problem)}): is it in reach from there? Fetch again"
        case HfHubHTTPError():
            return f"{constants.ENDPOINT} answered {problem.response.status_code}: {_TOKEN} that may read it, or wait"
        case OSError(errno=errno.ENOSPC):
            return f"there is no room in {constants.HF_HUB_CACHE}"
        case OSError(strerror=str(words)):
            return f"it can't be kept in {constants.HF_HUB_CACHE}: {words}"
    return f"it broke off ({type(problem).__name__}): fetch again, files that came whole are kept"


def _cause(problem: Exception) -> str:
    cause = problem.__cause__
    return type(problem if cause is None else cause).__name__
