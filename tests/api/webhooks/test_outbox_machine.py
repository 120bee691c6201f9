"""A state machine: every sequence of steps by live and dead senders keeps the invariants of the outbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule
from support.deliveries import (
    DESTINATION,
    DOWN,
    LIMITS,
    OTHER_DESTINATION,
    OTHER_URL,
    URL,
    destination_id,
    everything,
    hooked_task,
    make_deliveries_due,
)
from support.state_machines import PHASES, RedisMachine, run_machine
from support.tasks import QUEUE

from serve_app.config.settings import WebhookSettings
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status
from serve_app.webhooks.outbox import Claim, DeliveryOutcome, DeliveryState, DestinationHealth, Outbox
from serve_app.webhooks.policy import RetrySchedule

POLICY = WebhookSettings(
    schedule_s=(60, 60, 60),
    per_destination=3,
    per_organization=4,
    failure_threshold=2,
    circuit_open_s=60,
    max_circuit_open_s=240,
)
MAX_ATTEMPTS = RetrySchedule.from_settings(POLICY).max_attempts
PENDING_STATES = {DeliveryState.WAITING, DeliveryState.SENDING}
DESTINATIONS = (DESTINATION, OTHER_DESTINATION)
OF_DESTINATIONS = [f"{name}:{destination}" for name in ("outbox", "sending") for destination in DESTINATIONS]
INDEXES = ("deliveries", "undelivered", "pending", "calls:default", "outbox", *OF_DESTINATIONS)


@dataclass
class ExpectedDelivery:
    destination: str
    state: DeliveryState = DeliveryState.WAITING
    attempts: int = 0
    number: int = 0
    """Number of the latest claim."""
    noted: int = 0
    """Attempts in the log."""
    again: bool = False
    """True if a replay was requested during an attempt: a final failure restarts the delivery."""

    def fail(self) -> None:
        if self.again:
            self.state, self.attempts, self.again = DeliveryState.WAITING, 0, False
        else:
            self.state = DeliveryState.FAILED


def machine(redis_url: str) -> type[RuleBasedStateMachine]:
    class OutboxMachine(RedisMachine):
        claims = Bundle("claims")

        def __init__(self) -> None:
            super().__init__(redis_url)
            self.store = TaskStore(self.redis, self.prefix, LIMITS)
            self.outbox = Outbox(self.redis, self.prefix, POLICY)
            self.expected: dict[str, ExpectedDelivery] = {}
            self.silent: list[str] = []

        def pick(self, pick: int) -> str:
            return list(self.expected)[pick % len(self.expected)] if self.expected else "unknown"

        def track_claim(self, claim: Claim) -> Claim:
            """Checks a new claim and expects its delivery to be sent."""
            delivery = self.expected[claim.id]
            assert delivery.state is DeliveryState.WAITING
            assert claim.number == delivery.number + 1
            assert claim.attempt == delivery.attempts + 1 <= MAX_ATTEMPTS
            delivery.state, delivery.number, delivery.attempts = DeliveryState.SENDING, claim.number, claim.attempt
            return claim

        @rule(url=st.sampled_from((URL, OTHER_URL, None)), cancelled=st.booleans())
        def task_ends(self, url: str | None, cancelled: bool) -> None:
            task = hooked_task(url)
            self.do(self.store.submit(task))
            if cancelled:
                self.do(self.store.cancel(task.id, "p"))
            else:
                [lease] = self.do(self.store.lease(QUEUE, 1, 1000))
                self.do(self.store.complete(QUEUE, lease.id, lease.attempt, Status.READY))
            if url:
                self.expected[task.id] = ExpectedDelivery(destination_id(url))
            else:
                self.silent.append(task.id)

        @rule(target=claims, n=st.integers(1, 8))
        def claim(self, n: int) -> Any:
            claims: list[Claim] = self.do(self.outbox.claim(n))
            assert len(claims) <= n
            assert len({claim.id for claim in claims}) == len(claims)
            return multiple(*map(self.track_claim, claims))

        @rule(claim=claims, outcome=st.sampled_from(DeliveryOutcome), down=st.booleans())
        def record(self, claim: Claim, outcome: DeliveryOutcome, down: bool) -> None:
            if outcome is DeliveryOutcome.RETRY and claim.attempt >= MAX_ATTEMPTS:
                outcome = DeliveryOutcome.FAILED
            delivery = self.expected.get(claim.id)
            is_current = (
                delivery is not None and delivery.state is DeliveryState.SENDING and delivery.number == claim.number
            )
            before = None if is_current else self.do(everything(self.store))
            is_down = down and outcome is not DeliveryOutcome.DELIVERED
            health = DestinationHealth.DOWN if is_down else DestinationHealth.UP
            recorded = self.do(self.outbox.record(claim, DOWN, outcome, wait_s=60, health=health))
            assert recorded == is_current
            if is_current and delivery is not None:
                delivery.noted += 1
                match outcome:
                    case DeliveryOutcome.DELIVERED:
                        delivery.state, delivery.again = DeliveryState.DELIVERED, False
                    case DeliveryOutcome.RETRY:
                        delivery.state = DeliveryState.WAITING
                    case DeliveryOutcome.FAILED:
                        delivery.fail()
            else:
                assert self.do(everything(self.store)) == before, "a stale claim changes nothing"

        @rule(claim=claims)
        def prolong(self, claim: Claim) -> None:
            self.do(self.outbox.prolong([claim]))

        @rule(target=claims)
        def senders_die_and_their_claims_run_out(self) -> Any:
            self.do(make_deliveries_due(self.outbox, waits=False, pauses=False))
            claims: list[Claim] = self.do(self.outbox.claim(1000))
            # All wait again on schedule, but those with a requested replay are due and may be claimed.
            for delivery in self.expected.values():
                if delivery.state is DeliveryState.SENDING:
                    delivery.noted += 1
                    delivery.state = DeliveryState.WAITING
                    if delivery.attempts >= MAX_ATTEMPTS:
                        delivery.fail()
            return multiple(*map(self.track_claim, claims))

        @rule()
        def waits_are_over(self) -> None:
            self.do(make_deliveries_due(self.outbox, claims=False, pauses=False))

        @rule()
        def pauses_are_over(self) -> None:
            self.do(make_deliveries_due(self.outbox, claims=False, waits=False))

        @rule(pick=st.integers(0, 1000))
        def replay(self, pick: int) -> None:
            task_id = self.pick(pick)
            assert self.do(self.outbox.replay(task_id)) == (task_id in self.expected)
            delivery = self.expected.get(task_id)
            if delivery and delivery.state is DeliveryState.SENDING:
                delivery.again = True
            elif delivery:
                delivery.state, delivery.attempts = DeliveryState.WAITING, 0

        @rule()
        def replay_unknown_delivery(self) -> None:
            for task_id in ("unknown", *self.silent[-1:]):
                assert not self.do(self.outbox.replay(task_id))

        @rule()
        def sweep(self) -> None:
            key = f"{self.prefix}retention"
            for member in self.do(self.redis.zrange(key, 0, -1)):
                self.do(self.redis.zadd(key, {member: 1}))
            candidates = set(self.do(self.store.sweep(limit=1000)))
            over = {i for i, delivery in self.expected.items() if delivery.state not in PENDING_STATES}
            assert candidates == over | set(self.silent)
            self.do(self.store.sweep(sorted(candidates), limit=0))
            for task_id in over:
                del self.expected[task_id]
                assert not self.do(
                    self.redis.exists(f"{self.prefix}delivery:{task_id}", f"{self.prefix}attempts:{task_id}")
                )
            self.silent.clear()

        @invariant()
        def deliveries_are_as_expected(self) -> None:
            deliveries, _ = self.do(self.outbox.list_deliveries(limit=1000))
            assert {delivery.id for delivery in deliveries} == set(self.expected)
            for delivery in deliveries:
                expected = self.expected[delivery.id]
                assert (delivery.state, delivery.destination.encode()) == (expected.state, expected.destination)
                assert delivery.attempts == expected.attempts <= MAX_ATTEMPTS
                assert len(delivery.log) == min(expected.noted, 50)
                assert (delivery.next is not None) == (delivery.state is DeliveryState.WAITING)
                if delivery.state not in PENDING_STATES:
                    assert delivery.finished is not None

        @invariant()
        def indexes_agree_with_states(self) -> None:
            scores = self.read_scores()
            members = {name: set(rows) for name, rows in scores.items()}

            def having(*states: DeliveryState, destination: str | None = None) -> set[str]:
                return {
                    i for i, d in self.expected.items() if d.state in states and destination in (None, d.destination)
                }

            assert members["deliveries"] == set(self.expected)
            assert members["undelivered"] == having(DeliveryState.FAILED)
            assert members["pending"] == having(*PENDING_STATES)
            assert members["calls:default"] == having(DeliveryState.SENDING)
            assert len(members["calls:default"]) <= POLICY.per_organization
            for destination in DESTINATIONS:
                assert members[f"outbox:{destination}"] == having(DeliveryState.WAITING, destination=destination)
                assert members[f"sending:{destination}"] == having(DeliveryState.SENDING, destination=destination)
                assert len(members[f"sending:{destination}"]) <= POLICY.per_destination
                is_pending = bool(having(*PENDING_STATES, destination=destination))
                assert (destination in members["outbox"]) == is_pending, "it is checked while anything is pending"
                self.check_next_visit(destination, scores)

        def check_next_visit(self, destination: str, scores: dict[str, dict[str, float]]) -> None:
            """Checks that a destination is visited once a delivery is due and its circuit is not open."""
            waiting, sending = scores[f"outbox:{destination}"], scores[f"sending:{destination}"]
            if not waiting or sending:  # the end of a call leads to the next visit, too
                return
            open_until = float(self.do(self.redis.hget(f"{self.prefix}destination:{destination}", "open_until")) or 0)
            seconds, _ = self.do(self.redis.time())
            assert scores["outbox"][destination] <= max(min(waiting.values()), open_until, (seconds + 1) * 1000)

        def read_scores(self) -> dict[str, dict[str, float]]:
            pipe = self.redis.pipeline(transaction=False)
            for name in INDEXES:
                pipe.zrange(self.prefix + name, 0, -1, withscores=True)
            return {name: dict(rows) for name, rows in zip(INDEXES, self.do(pipe.execute()), strict=True)}

    return OutboxMachine


@pytest.mark.parametrize("examples", [8, pytest.param(30, marks=pytest.mark.slow)])
def test_outbox_machine(redis_url: str, examples: int) -> None:
    run_machine(machine(redis_url), examples=examples, steps=30, phases=PHASES)
