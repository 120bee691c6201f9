"""Logging of a process: levels per module, and the task that a line is about.

Replicas write to the file that Ray Serve keeps for them, in Serve's own format, plain or JSON. They write at once,
while Serve buffers a thousand of its own lines, which suits one line per request but not warnings.

`bind` sets the task that an asyncio task works on; JSON lines have it as fields.
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
"""Lowest level that is logged, one of LEVELS, by module; applies to all modules below it."""

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
OWN: Final = ("serve_app", "deployments")
MODULES: Final = (*OWN, "ray.serve")
"""Prefixes of the modules whose level can be set."""
_SERVE: Final = "ray.serve"
_DEFAULT_LEVEL: Final = "info"
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

_context: ContextVar[Mapping[str, Any]] = ContextVar("context", default=_NOTHING)
_changed: set[str] = set()
"""Modules whose level was set here."""


@dataclass(frozen=True, slots=True)
class LogSpec:
    format: Format = "text"
    levels: Levels = field(default_factory=dict)

    def serve_options(self) -> dict[str, Any]:
        """Returns the options of a deployment for Ray Serve."""
        if self.format == "text":
            return {}
        # Serve leaves out `name`, the module, by default.
        return {"logging_config": {"encoding": "JSON", "additional_log_standard_attrs": ["name"]}}


DEFAULT_LOGS: Final = LogSpec()


def bind(**context: str | int) -> None:
    """Adds fields to the log lines of this asyncio task: `task`, `project`, `model`, `attempt`, `trace`."""
    _context.set({**_context.get(), **{name: value for name, value in context.items() if value != ""}})


def configure_replica(spec: LogSpec) -> None:
    """Sets up logging of a replica. Idempotent."""
    for name in OWN:
        logger = logging.getLogger(name)
        if not any(isinstance(handler, _ServeHandler) for handler in logger.handlers):
            logger.addHandler(_ServeHandler())
    set_levels(spec.levels)


def configure_stderr(spec: LogSpec) -> None:
    """Sets up logging of a process that is no replica. The text format is Python's default: warnings only."""
    if spec.format == "json":
        handler = logging.StreamHandler()
        handler.setFormatter(_JsonFormatter())
        for name in OWN:
            logging.getLogger(name).addHandler(handler)
        set_levels(spec.levels)


def set_levels(levels: Levels) -> None:
    """Sets these levels, and resets all others set before."""
    new_levels = {**dict.fromkeys(OWN, _DEFAULT_LEVEL), **levels}
    for name in _changed - new_levels.keys():
        logging.getLogger(name).setLevel(logging.INFO if name == _SERVE else logging.NOTSET)
    for name, level in new_levels.items():
        logging.getLogger(name).setLevel(level.upper())
    _changed.clear()
    _changed.update(new_levels)


def check_level(module: str, level: str) -> None:
    """Raises ValueError for an unknown module or level."""
    if not any(module == root or module.startswith(f"{root}.") for root in MODULES):
        raise ValueError(f"{module}: the name of a module begins with {', '.join(MODULES)}")
    if level not in LEVELS:
        raise ValueError(f"{level}: a level is one of {', '.join(LEVELS)}")


def add_context(record: logging.LogRecord) -> bool:
    """Adds the fields of `bind` to a record. A logging filter that accepts all records."""
    for name, value in _context.get().items():
        setattr(record, name, value)
    return True


class _JsonFormatter(logging.Formatter):
    """Formats lines with the field names of Serve."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {"asctime": self.formatTime(record), "levelname": record.levelname, "name": record.name}
        entry |= {"message": record.getMessage(), **_context.get()}
        if record.exc_info:
            entry["exc_text"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class _ServeHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.addFilter(add_context)

    def emit(self, record: logging.LogRecord) -> None:
        for handler in _serve_handlers():
            if handler.filter(record):
                # `target` of a buffering handler is that of the file.
                (getattr(handler, "target", None) or handler).handle(record)


def _serve_handlers() -> Sequence[logging.Handler]:
    """Returns Serve's present handlers, which it replaces when its settings change."""
    return logging.getLogger(_SERVE).handlers or ([logging.lastResort] if logging.lastResort else [])
