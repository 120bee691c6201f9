"""The life of tasks as a model that can be searched from end to end: every step, in every order, with every mishap.

The scripts of the task store are functions on records (`scripts.py`). Here are those who call them: clients,
dispatchers and time. A call has three ways: its answer is heard; it is carried out and the answer is lost, so that the
caller stands where it stood and calls again; or it is adrift, and is carried out at any later time while the caller
calls again, or gives up. Dispatchers die and come back knowing nothing, or freeze and come back as if nothing had been;
workers are lost; work is given back. Those, and what is lost or adrift, are the mishaps; all else is free to happen.

Bounded are the tasks, the dispatchers and the mishaps (`search.py`), and nothing else: each attempt but the first
follows a mishap. That loses little: a script looks at one task and at two attempts, its own and the present one; only
`lease` looks at whether another task is isolated. The second strike ends a task that ran alone, so that two mishaps
reach that end. Left out is what no invariant here speaks of: fair order (any waiting task may be next), progress and
`Reasoning`, leases of several tasks at once (they are several leases), memory, webhooks and amounts of money. Taken
from the rest of the service: - A submission that is adrift is repeated only when its time is over: the client library
waits longer than `SUBMIT_S`. - A dispatcher that is out of the store's reach for all its retries counts as lost, as
one that is frozen does. - Nobody reaps until Redis was in reach for one lease length: a release that was adrift has
arrived by then. - A record is kept for much longer than a client waits for the answer to its submission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from support.task_life.scripts import ABSENT, ERROR, READY, SWEPT, Scripts, Task

HEARD, LOST, ADRIFT = "", "its answer is lost", "it is adrift"
ARRIVES = "what was adrift"
TAKEN, WORKING, LEAVING, STRICKEN = "taken", "working", "leaving", "stricken"


class Call(NamedTuple):
    """A call about one task."""

    name: str
    attempt: int = 0
    status: str = ""
    strike: bool = False
    alone: bool = False


SUBMIT = Call("submit")


class Life(NamedTuple):
    """A task, the client whose request it is, and the calls about it that are adrift."""

    task: Task = Task()
    told: str = ""
    """What the client was told: `accepted`, `refused`, or `repeated` of another with its key. Where the answer was
    uncertain, it is what the list of tasks says."""
    over: bool = False
    """The time of its submission is."""
    adrift: tuple[Call, ...] = ()
    lost: bool = False
    """A worker really was, with the attempt that is leased, or a dispatcher after it had begun."""
    orphaned: bool = False
    """Whoever was handed the lease is gone, or stopped asking for it."""


class Work(NamedTuple):
    """What a dispatcher remembers of a lease. `stricken`: its worker was lost; `leaving`: it is given back unblamed."""

    attempt: int
    isolated: bool
    phase: str = TAKEN


Slots = tuple[Work | tuple[()], ...]
"""By task."""


class Dispatcher(NamedTuple):
    work: Slots
    """Of an older attempt it hears before it takes the same task again."""
    kept: Slots
    """The reply that the store keeps under the id of the lease that it is asking for."""
    asking: bool = False
    """It sent a lease and was not answered."""
    adrift: str = ""
    """That lease is (`asked`), or an earlier one (`given up`)."""
    frozen: bool = False

    def with_work(self, i: int, work: Work | tuple[()]) -> Dispatcher:
        return self._replace(work=filled(self.work, i, work))


class World(NamedTuple):
    lives: tuple[Life, ...]
    dispatchers: tuple[Dispatcher, ...]

    def live(self, i: int, life: Life) -> World:
        return World((*self.lives[:i], life, *self.lives[i + 1 :]), self.dispatchers)

    def dispatch(self, d: int, dispatcher: Dispatcher) -> World:
        return World(self.lives, (*self.dispatchers[:d], dispatcher, *self.dispatchers[d + 1 :]))


class Step(NamedTuple):
    who: str
    name: str
    task: int | None = None
    call: Call = Call("")
    how: str = HEARD
    answer: object = None
    mishap: bool = False
    forced: bool = False
    """A client's wish, or a deadline: no task should need it in order to end."""

    def __str__(self) -> str:
        task = "" if self.task is None else f", task {self.task}"
        attempt = f", attempt {self.call.attempt}" if self.call.attempt else ""
        return f"{self.who}: {self.name}{task}{attempt}" + (f" ({self.how})" if self.how else "")


Ways = Iterator[tuple[Step, World]]


def filled(slots: Slots, i: int, one: Work | tuple[()]) -> Slots:
    return (*slots[:i], one, *slots[i + 1 :])


def _not_asking(dispatcher: Dispatcher, kept: Slots) -> Dispatcher:
    return dispatcher._replace(kept=kept, asking=False, adrift="given up" if dispatcher.adrift else "")


def lost_with(life: Life, attempt: int) -> Life:
    return life._replace(lost=life.lost or attempt == life.task.attempt)


class TaskLife:
    """All that can happen. With `same_key` the requests are one, repeated by its client with its idempotency key."""

    def __init__(
        self,
        scripts: Scripts,
        *,
        tasks: int = 2,
        dispatchers: int = 2,
        same_key: bool = False,
    ) -> None:
        self.scripts = scripts
        self.same_key = same_key
        self._empty: Slots = ((),) * tasks
        self.start = World((Life(),) * tasks, (Dispatcher(self._empty, self._empty),) * dispatchers)

    def steps(self, world: World, *, mishaps: bool) -> Ways:
        """Every step from here; with `mishaps`, those too."""
        for i in range(len(world.lives)):
            yield from self._asks(world, i, mishaps)
            yield from self._time_passes(world, i)
            yield from self._arrives(world, i)
        for d, dispatcher in enumerate(world.dispatchers):
            if dispatcher.adrift:
                yield from self._lease_arrives(world, d)
            if dispatcher.frozen:
                yield Step(f"dispatcher {d}", "thaws"), world.dispatch(d, dispatcher._replace(frozen=False))
                continue
            yield from self._leases(world, d, mishaps)
            for i, work in enumerate(dispatcher.work):
                if isinstance(work, Work):
                    yield from self._works(world, d, i, work, mishaps)
            if mishaps and (dispatcher.asking or any(dispatcher.work)):
                yield from self._is_lost(world, d)

    # Calls about one task

    def carried_out(self, world: World, i: int, call: Call) -> tuple[Life, object]:
        life, scripts = world.lives[i], self.scripts
        match call.name:
            case "submit":
                others = (*world.lives[:i], *world.lives[i + 1 :])
                seen = self.same_key and any(other.task.status != ABSENT for other in others)
                task, answer = scripts.submit(life.task, life.over, seen)
            case "cancel":
                task, answer = scripts.cancel(life.task)
            case "heartbeat":
                task, answer = scripts.heartbeat(life.task, call.attempt)
            case "advance":
                task, answer = scripts.advance(life.task, call.attempt)
            case "complete":
                task, answer = scripts.complete(life.task, call.attempt, call.status)
            case _:
                task, answer = scripts.release(life.task, call.attempt, call.strike, call.alone)
        return (life if task is life.task else life._replace(task=task)), answer

    def _called(
        self,
        world: World,
        who: str,
        i: int,
        call: Call,
        hears: Callable[[World, object], World],
        mishaps: bool,
        forced: bool = False,
    ) -> Ways:
        """The ways of a call; `hears` is what the caller makes of the answer."""
        before = world.lives[i]
        life, answer = self.carried_out(world, i, call)
        after = world if life is before else world.live(i, life)
        yield Step(who, call.name, i, call, HEARD, answer, forced=forced), hears(after, answer)
        if not mishaps:
            return
        if after is not world:
            yield Step(who, call.name, i, call, LOST, mishap=True), after
        if call not in before.adrift and call.name != "heartbeat":  # one that comes late prolongs as one in time
            late = before._replace(adrift=tuple(sorted((*before.adrift, call))))
            yield Step(who, call.name, i, call, ADRIFT, mishap=True), world.live(i, late)

    def _arrives(self, world: World, i: int) -> Ways:
        for call in world.lives[i].adrift:
            life, _ = self.carried_out(world, i, call)
            rest = tuple(other for other in life.adrift if other != call)
            yield Step(ARRIVES, call.name, i, call), world.live(i, life._replace(adrift=rest))

    # Clients and time

    def _asks(self, world: World, i: int, mishaps: bool) -> Ways:
        life, who = world.lives[i], f"client {i}"

        def told(after: World, answer: object) -> World:
            return after.live(i, after.lives[i]._replace(told=str(answer)))

        if not life.told:
            if life.over or SUBMIT not in life.adrift:
                yield from self._called(world, who, i, SUBMIT, told, mishaps)
            if life.task.status == ABSENT and not life.over and not life.adrift:
                yield Step(who, "submit, and there is no room", i), told(world, "refused")
            if life.over:
                found = "refused" if life.task.status == ABSENT else "accepted"
                yield Step(who, "stops waiting, and looks", i), told(world, found)
        elif life.told == "accepted" and life.task.status != SWEPT:
            yield from self._called(world, who, i, Call("cancel"), lambda after, _: after, mishaps, True)

    def _time_passes(self, world: World, i: int) -> Ways:
        life, scripts = world.lives[i], self.scripts
        task = life.task

        def by(name: str, after: Task, forced: bool = False) -> tuple[Step, World]:
            return Step("time", name, i, forced=forced), world.live(i, life._replace(task=after))

        if not life.over and (not life.told or SUBMIT in life.adrift):
            yield Step("time", "is over for submit", i), world.live(i, life._replace(over=True))
        if "deadlines" in task.places:
            yield by("end_overdue", scripts.end_overdue(task), forced=True)
        if "leased" in task.places and not task.run_out and not self._is_prolonged(world, i):
            step, after = by("lease runs out", task._replace(run_out=True))
            forgetful = (each._replace(kept=filled(each.kept, i, ())) for each in world.dispatchers)
            yield step, World(after.lives, tuple(forgetful))
        if task.run_out and not any(call.name == "release" for call in life.adrift):
            yield by("reap", scripts.reap(task))
        if "retention" in task.places and life.told:
            yield by("sweep", scripts.sweep(task))

    def _is_prolonged(self, world: World, i: int) -> bool:
        attempt = world.lives[i].task.attempt
        slots = (each.work[i] for each in world.dispatchers if not each.frozen)
        return any(isinstance(work, Work) and work.attempt == attempt for work in slots)

    # Dispatchers

    def _leases(self, world: World, d: int, mishaps: bool) -> Ways:
        dispatcher, who = world.dispatchers[d], f"dispatcher {d}"
        for i, kept in enumerate(dispatcher.kept):
            if isinstance(kept, Work):
                again = Step(who, "lease, again, by the same id", i, Call("lease", kept.attempt))
                yield again, world.dispatch(d, self._heard(dispatcher, i, kept))
                break
        else:
            for i in self._next(world):
                if not dispatcher.work[i]:
                    after, lease = self._taken(world, i)
                    step = Step(who, "lease", i, Call("lease", lease.attempt))
                    yield step, after.dispatch(d, self._heard(dispatcher, i, lease))
                    if not mishaps:
                        continue
                    kept = filled(dispatcher.kept, i, lease) if self.scripts.keeps_replies else dispatcher.kept
                    unheard = after.dispatch(d, dispatcher._replace(asking=True, kept=kept))
                    yield step._replace(how=LOST, mishap=True), unheard
        if mishaps and not dispatcher.adrift:
            late = dispatcher._replace(asking=True, adrift="asked")
            yield Step(who, "lease", how=ADRIFT, mishap=True), world.dispatch(d, late)
        if dispatcher.asking:
            yield Step(who, "asks no more for its lease"), self._stops_asking(world, d)

    def _lease_arrives(self, world: World, d: int) -> Ways:
        dispatcher = world.dispatchers[d]._replace(adrift="")
        asked, who = world.dispatchers[d].adrift == "asked", ARRIVES
        due = [] if asked and any(dispatcher.kept) else list(self._next(world))
        if not due or not asked:
            yield Step(who, "lease, which hands out nothing"), world.dispatch(d, dispatcher)
        for i in due:
            after, lease = self._taken(world, i)
            if asked and self.scripts.keeps_replies:
                after = after.dispatch(d, dispatcher._replace(kept=filled(dispatcher.kept, i, lease)))
            else:
                after = after.dispatch(d, dispatcher).live(i, after.lives[i]._replace(orphaned=True))
            yield Step(who, "lease", i, Call("lease", lease.attempt)), after

    def _next(self, world: World) -> Iterator[int]:
        """The tasks that a lease may take: a suspect if one waits and none is isolated, else any that is queued."""
        suspects = [i for i, life in enumerate(world.lives) if "suspects" in life.task.places]
        if suspects and not any("isolated" in life.task.places for life in world.lives):
            yield from suspects
        else:
            yield from (i for i, life in enumerate(world.lives) if "queued" in life.task.places)

    def _taken(self, world: World, i: int) -> tuple[World, Work]:
        life = world.lives[i]
        task = self.scripts.lease(life.task)
        after = world.live(i, life._replace(task=task, lost=False, orphaned=False))
        return after, Work(task.attempt, "isolated" in task.places)

    def _heard(self, dispatcher: Dispatcher, i: int, lease: Work) -> Dispatcher:
        return _not_asking(dispatcher.with_work(i, lease), filled(dispatcher.kept, i, ()))

    def _stops_asking(self, world: World, d: int) -> World:
        for i, kept in enumerate(world.dispatchers[d].kept):
            if kept:
                world = world.live(i, world.lives[i]._replace(orphaned=True))
        return world.dispatch(d, _not_asking(world.dispatchers[d], self._empty))

    def _works(self, world: World, d: int, i: int, work: Work, mishaps: bool) -> Ways:
        life, who = world.lives[i], f"dispatcher {d}"

        def now(after: World, next_work: Work | tuple[()]) -> World:
            return after.dispatch(d, after.dispatchers[d].with_work(i, next_work))

        def call(made: Call, next_work: Work | tuple[()]) -> Ways:
            """Work that is nobody's business any more stops."""

            def hears(after: World, ours: object) -> World:
                return after if ours and next_work is work else now(after, next_work if ours else ())

            return self._called(world, who, i, made, hears, mishaps)

        yield from call(Call("heartbeat", work.attempt), work)
        if work.phase in (LEAVING, STRICKEN):
            strike = work.phase == STRICKEN
            release = Call("release", work.attempt, strike=strike, alone=strike and work.isolated)
            yield from call(release, ())
            if release in life.adrift:
                gone = world.live(i, life._replace(orphaned=True))
                yield Step(who, "release stays without an answer", i, release), now(gone, ())
            return
        if work.phase == TAKEN:
            advance = Call("advance", work.attempt)
            yield from call(advance, work._replace(phase=WORKING))
            if advance in life.adrift:
                yield Step(who, "advance stays without an answer", i), now(world, work._replace(phase=WORKING))
        yield from call(Call("complete", work.attempt, READY if work.phase == WORKING else ERROR), ())
        if not mishaps:
            return
        yield Step(who, "gives back", i, mishap=True), now(world, work._replace(phase=LEAVING))
        stricken = Work(work.attempt, work.isolated and work.phase == WORKING, STRICKEN)
        blamed = world.live(i, lost_with(life, work.attempt))
        yield Step(who, "loses its worker", i, mishap=True), now(blamed, stricken)

    def _is_lost(self, world: World, d: int) -> Ways:
        """Kills the dispatcher, or freezes it."""
        dispatcher, who = world.dispatchers[d], f"dispatcher {d}"
        dead = self._stops_asking(world, d)
        dead = dead.dispatch(d, dead.dispatchers[d]._replace(work=self._empty))
        frozen = world.dispatch(d, dispatcher._replace(frozen=True))
        for i, work in enumerate(dispatcher.work):
            if isinstance(work, Work):
                life = dead.lives[i]._replace(orphaned=True)
                told = life.task.begun == work.attempt or Call("advance", work.attempt) in life.adrift
                begun = told or work.phase != TAKEN
                dead = dead.live(i, lost_with(life, work.attempt) if begun else life)
                frozen = frozen.live(i, lost_with(frozen.lives[i], work.attempt))
        yield Step(who, "dies", mishap=True), dead
        yield Step(who, "freezes", mishap=True), frozen
