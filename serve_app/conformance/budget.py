"""What a run of the kit may cost."""

from __future__ import annotations

from serve_app.conformance.verdicts import Skipped


class Budget:
    def __init__(self, credits: float) -> None:
        self.credits = credits
        self.spent = 0.0

    def reserve(self, credits: float) -> None:
        """Before a task is started. Raises Skipped where it would be too much."""
        if self.spent + credits > self.credits:
            raise Skipped(
                f"it would cost {credits:g} credits, and {self.credits - self.spent:g} are left of the budget"
            )
        self.spent += credits

    def correct(self, reserved: float, cost: float) -> None:
        """Once the server has said what a task costs; 0 for one that was refused or cancelled."""
        self.spent += cost - reserved
