"""Problems of settings and catalogs, each with the place that it was written at."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from deployments.contract.strict_settings import UNKNOWN_SETTING
from deployments.contract.yaml_files import find_line

PREFIX: Final = "GEN_"
DELIMITER: Final = "__"

Place: TypeAlias = tuple[str | int, ...]


class InvalidSettings(ValueError):
    """The message has every problem, with file and line or the variable, fit for one line."""


@contextmanager
def located(files: Sequence[Path], secrets: Mapping[str, Path] | None = None) -> Iterator[None]:
    """Raises InvalidSettings in place of pydantic's error. Later `files` override; `secrets` are by variable."""
    try:
        yield
    except ValidationError as problem:
        raise InvalidSettings("; ".join(_describe(problem, files, secrets or {}))) from None


def check_variables(sections: Mapping[str, Any], secrets: Mapping[str, Path]) -> None:
    """Raises InvalidSettings for a variable, or a file of `secrets_dir`, that looks like a setting and is none.

    A variable without two underscores may be anyone's (Kubernetes sets `GEN_PORT` for a service named gen); a file is
    ours by its place.
    """
    variables = {name: f"the variable {name}" for name in os.environ if name.upper().startswith(PREFIX)}
    variables = {name: place for name, place in variables.items() if DELIMITER in name}
    for name, place in {**variables, **{name: str(path) for name, path in secrets.items()}}.items():
        section = name[len(PREFIX) :].lower().partition(DELIMITER)[0]
        if section in sections:
            continue
        near = get_close_matches(section, sections, n=1)
        meant = f": did you mean {PREFIX}{near[0].upper()}{name[len(PREFIX) + len(section) :]}?" if near else ""
        raise InvalidSettings(f"{place}: there is no setting {section}{meant}")


def _describe(problem: ValidationError, files: Sequence[Path], secrets: Mapping[str, Path]) -> Iterator[str]:
    """One text for each setting and message. Models that share settings by an anchor are named together."""
    names: dict[tuple[str, str], list[str]] = {}
    sources: dict[tuple[str, str], str] = {}
    for each in problem.errors():
        place = _place(each)
        first, *rest = map(str, place or ("settings",))  # none where several of them don't fit together
        model = [rest.pop(0)] if first == "models" and len(rest) > 1 else []
        key = (".".join(rest) if model else ".".join([first, *rest]), each["msg"])
        names.setdefault(key, []).extend(model)
        sources.setdefault(key, _source(place, files, secrets))
    for (setting, message), models in names.items():
        owner = models[0] if len(models) == 1 else f"{{{', '.join(models)}}}"
        yield f"{sources[setting, message]}{f'models.{owner}.' if models else ''}{setting}: {message}"


def _place(error: ErrorDetails) -> Place:
    """Returns where the setting stands; of an unknown one pydantic names the section alone."""
    return (*error["loc"], error.get("ctx", {})["name"]) if error["type"] == UNKNOWN_SETTING else error["loc"]


def _source(place: Place, files: Sequence[Path], secrets: Mapping[str, Path]) -> str:
    """Returns the variable, or the file and line, that set it, with a colon; empty where none did."""
    for depth in range(len(place), 0, -1):
        variable = PREFIX + DELIMITER.join(map(str, place[:depth])).upper()
        if variable in os.environ:
            return f"{variable}: "
        if variable in secrets:
            return f"{secrets[variable]}: "
    for depth in range(len(place), 0, -1):
        for file in reversed(files):
            if line := find_line(file, place[:depth]):
                return f"{file}:{line}: "
    return ""
