"""Errors in settings and catalogs, each with its file and line, or its variable."""

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

SettingPath: TypeAlias = tuple[str | int, ...]


class InvalidSettings(ValueError):
    """The message lists all problems on one line, each with its file and line, or its variable."""


@contextmanager
def located(files: Sequence[Path], secrets: Mapping[str, Path] | None = None) -> Iterator[None]:
    """Turns pydantic's error into InvalidSettings. Later `files` override earlier ones; `secrets` are by variable."""
    try:
        yield
    except ValidationError as problem:
        raise InvalidSettings("; ".join(_describe(problem, files, secrets or {}))) from None


def check_variables(sections: Mapping[str, Any], secrets: Mapping[str, Path]) -> None:
    """Raises InvalidSettings for a variable, or a file of `secrets_dir`, that names no section.

    Variables without two underscores are skipped: Kubernetes sets `GEN_PORT` for a service named gen.
    """
    names = [name for name in os.environ if name.upper().startswith(PREFIX) and DELIMITER in name]
    sources = {name: f"the variable {name}" for name in names} | {name: str(path) for name, path in secrets.items()}
    for name, source in sources.items():
        section = name[len(PREFIX) :].lower().partition(DELIMITER)[0]
        if section in sections:
            continue
        near = get_close_matches(section, sections, n=1)
        meant = f": did you mean {PREFIX}{near[0].upper()}{name[len(PREFIX) + len(section) :]}?" if near else ""
        raise InvalidSettings(f"{source}: there is no setting {section}{meant}")


def _describe(problem: ValidationError, files: Sequence[Path], secrets: Mapping[str, Path]) -> Iterator[str]:
    """Yields a text for each setting and message. Models that share settings by a YAML anchor are named together."""
    names: dict[tuple[str, str], list[str]] = {}
    sources: dict[tuple[str, str], str] = {}
    for each in problem.errors():
        path = _setting_path(each)
        first, *rest = map(str, path or ("settings",))  # empty if several settings contradict each other
        model = [rest.pop(0)] if first == "models" and len(rest) > 1 else []
        key = (".".join(rest) if model else ".".join([first, *rest]), each["msg"])
        names.setdefault(key, []).extend(model)
        sources.setdefault(key, _source(path, files, secrets))
    for (setting, message), models in names.items():
        owner = models[0] if len(models) == 1 else f"{{{', '.join(models)}}}"
        yield f"{sources[setting, message]}{f'models.{owner}.' if models else ''}{setting}: {message}"


def _setting_path(error: ErrorDetails) -> SettingPath:
    """Returns the path of the setting. For an unknown one pydantic's own path ends at the section."""
    return (*error["loc"], error.get("ctx", {})["name"]) if error["type"] == UNKNOWN_SETTING else error["loc"]


def _source(path: SettingPath, files: Sequence[Path], secrets: Mapping[str, Path]) -> str:
    """Returns the variable, or the file and line, that set the value, with a colon; empty if none did."""
    for depth in range(len(path), 0, -1):
        variable = PREFIX + DELIMITER.join(map(str, path[:depth])).upper()
        if variable in os.environ:
            return f"{variable}: "
        if variable in secrets:
            return f"{secrets[variable]}: "
    for depth in range(len(path), 0, -1):
        for file in reversed(files):
            if line := find_line(file, path[:depth]):
                return f"{file}:{line}: "
    return ""
