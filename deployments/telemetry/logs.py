"""Logging of a process: levels per module, and the task that a line is about.

In a replica lines go to the file that Ray Serve keeps for it, in Serve's own format, plain or JSON. At once: Serve
holds its own lines back, a thousand at a time, which is right for one line a request and wrong for a warning.

`about` names the task that the rest of an asyncio task works on; lines in JSON have that as fields of their own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

Format: TypeAlias = Literal["text", "json"]
Levels: TypeAlias = Mapping[str, str]
"""By a module, or all below it, the least that is logged: one of LEVELS."""

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
OWN: Final = ("serve_app", "deployments")
MODULES: Final = (*OWN, "ray.serve")
"""Where the names of modules begin whose level may be set."""
_SERVE: Final = "ray.serve"
_USUAL: Final = "info"
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

_subject: ContextVar[Mapping[str, Any]] = ContextVar("subject", default=_NOTHING)
_set: set[str] = set()
"""Modules whose level was set here."""


@dataclass(frozen=True, slots=True)
class LogSpec:
    format: Format = "text"
    levels: Levels = field(default_factory=dict)

    def serve_options(self) -> dict[str, Any]:
        """What Ray Serve is told of a deployment's log file."""
        if self.format == "text":
            return {}
        # `name` is the module; Serve leaves it out unless asked.
        return {"logging_config": {"encoding": "JSON", "additional_log_standard_attrs": ["name"]}}


USUAL_LOGS: Final = LogSpec()


def about(**subject: str | int) -> None:
    """Names what the rest of this asyncio task works on: `task`, `project`, `model`, `attempt`, `trace`."""
    _subject.set({**_subject.get(), **{name: value for name, value in subject.items() if value != ""}})


def begin(spec: LogSpec) -> None:
    """Has this replica log. Harmless when repeated."""
    for name in OWN:
        logger = logging.getLogger(name)
        if not any(isinstance(handler, _ToServe) for handler in logger.handlers):
            logger.addHandler(_ToServe())
    set_levels(spec.levels)


def begin_on_stderr(spec: LogSpec) -> None:
    """Has a process log that is no replica. Plain text stays as Python has it: warnings, without more."""
    if spec.format == "json":
        handler = logging.StreamHandler()
        handler.setFormatter(_JsonLines())
        for name in OWN:
            logging.getLogger(name).addHandler(handler)
        set_levels(spec.levels)


def set_levels(levels: Levels) -> None:
    """These, and the usual one for whatever had another until now."""
    new_levels = {**dict.fromkeys(OWN, _USUAL), **levels}
    for name in _set - new_levels.keys():
        logging.getLogger(name).setLevel(logging.INFO if name == _SERVE else logging.NOTSET)
    for name, level in new_levels.items():
        logging.getLogger(name).setLevel(level.upper())
    _set.clear()
    _set.update(new_levels)


def checked_level(module: str, level: str) -> None:
    """Raises ValueError for a module or a level that is none."""
    if not any(module == root or module.startswith(f"{root}.") for root in MODULES):
        raise ValueError(f"{module}: the name of a module begins with {', '.join(MODULES)}")
    if level not in LEVELS:
        raise ValueError(f"{level}: a level is one of {', '.join(LEVELS)}")


def with_subject(record: logging.LogRecord) -> bool:
    """A filter that lets everything pass, and adds what it is about."""
    for name, value in _subject.get().items():
        setattr(record, name, value)
    return True


class _JsonLines(logging.Formatter):
    """By the names that Serve's lines have."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {"asctime": self.formatTime(record), "levelname": record.levelname, "name": record.name}
        entry |= {"message": record.getMessage(), **_subject.get()}
        if record.exc_info:
            entry["exc_text"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class _ToServe(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.addFilter(with_subject)

    def emit(self, record: logging.LogRecord) -> None:
        for handler in _handlers():
            if handler.filter(record):
                # Behind a buffer stands the file.
                (getattr(handler, "target", None) or handler).handle(record)


def _handlers() -> Sequence[logging.Handler]:
    """Looked up anew: Serve replaces them where its settings change."""
    return logging.getLogger(_SERVE).handlers or ([logging.lastResort] if logging.lastResort else [])
