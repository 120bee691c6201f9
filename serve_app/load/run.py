"""A whole load: several generator processes, each with its share of the requests by turns, merged afterwards."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from serve_app.load.generator import Strain, prepared
from serve_app.load.outcome import Outcome
from serve_app.load.request import Request
from serve_app.load.target import Target

_LEAD_S: Final = 0.3
"""Between the moment that all are ready and the start, so that each hears of it in time."""
_PATIENCE_S: Final = 10.0
"""For processes that were told to stop."""

_Line: TypeAlias = tuple[int, dict[str, Any] | None]
"""Of which process, and what; None at its end."""


class GeneratorFailed(Exception):
    """A generator's process ended too early; its own words are on stderr."""


@dataclass(slots=True)
class Ran:
    started: float
    """Epoch seconds."""
    outcomes: list[Outcome] = field(default_factory=list)
    """In the order of their requests."""
    strains: list[Strain] = field(default_factory=list)
    """By process."""
    interrupted: float | None = None
    """Seconds after the start at which somebody ended it."""


def run(
    target: Target,
    requests: Sequence[Request],
    processes: int = 1,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> Ran:
    """Ctrl-C ends it early, and what there is is returned. Raises ValueError where the adapter can't send one of the
    requests, GeneratorFailed where a process did not do its share."""
    if processes < 1:
        raise ValueError(f"processes should be 1 or more, not {processes}")
    prepared(target, requests)
    shares = [requests[first::processes] for first in range(processes)]
    generators = [_Generator(number, target, share) for number, share in enumerate(shares) if share]
    try:
        return _merged(generators, on_outcome)
    finally:
        for generator in generators:
            generator.end()


def _merged(generators: Sequence[_Generator], on_outcome: Callable[[Outcome], None]) -> Ran:
    lines: queue.Queue[_Line] = queue.Queue()
    ran = Ran(started=time.time())
    running = set(range(len(generators)))
    try:
        for generator in generators:
            generator.read_into(lines)
        for _ in generators:
            number, said = lines.get()
            if said is None:
                raise GeneratorFailed(f"generator process {number} ended before it began")
        ran.started = time.time() + _LEAD_S
        for generator in generators:
            generator.say(str(ran.started))
        _collect(lines, running, ran, on_outcome)
    except KeyboardInterrupt:
        ran.interrupted = max(0.0, time.time() - ran.started)
        for generator in generators:
            generator.say("stop")
        _collect(lines, running, ran, on_outcome)
    ran.outcomes.sort(key=lambda outcome: outcome.number)
    return ran


def _collect(lines: queue.Queue[_Line], running: set[int], ran: Ran, on_outcome: Callable[[Outcome], None]) -> None:
    """Until none of the processes in `running` has anything left to say."""
    while running:
        try:
            number, said = lines.get(timeout=None if ran.interrupted is None else _PATIENCE_S)
        except queue.Empty:
            raise GeneratorFailed(f"generator processes {sorted(running)} do not stop") from None
        match said:
            case {"outcome": told}:
                outcome = Outcome.of_json(told)
                ran.outcomes.append(outcome)
                on_outcome(outcome)
            case {"strain": told}:
                ran.strains.append(Strain(**told))
                running.discard(number)
            case None if number in running:
                if ran.interrupted is None:
                    raise GeneratorFailed(f"generator process {number} ended before its share was done")
                running.discard(number)


class _Generator:
    """One process, and the lines to and from it."""

    def __init__(self, number: int, target: Target, share: Sequence[Request]) -> None:
        self._number = number
        self._process = subprocess.Popen(
            [sys.executable, "-m", "serve_app.load.share"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C is for the process that was started; it tells the others.
            start_new_session=True,
        )
        self._share = [target.model_dump_json(), *(json.dumps(request.as_json()) for request in share), ""]

    def read_into(self, lines: queue.Queue[_Line]) -> None:
        """Sends it its share, and passes on what it says, in threads of their own."""
        threading.Thread(target=self._write, daemon=True).start()
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def end(self) -> None:
        """One that is still there has nobody left to hear it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write(self) -> None:
        self.say("\n".join(self._share))

    def _read(self, lines: queue.Queue[_Line]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                lines.put((self._number, json.loads(line)))
        lines.put((self._number, None))
