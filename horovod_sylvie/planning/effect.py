"""What groups do to a step: small maps that compose, so that plans need not be run from the start.

Groups, one after the other, add to backward and to what is left to do after it, and they move the
times at which the thread that selects and the link are free. Whatever stands before them, they do
it in the same way; so the effect of a plan is that of its parts, one on the other, and
`Effect.step_s` is what `timeline.simulate` finds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .timeline import GroupCost


class Effect(NamedTuple):
    """What groups do to what stands before them; by default, what no group does.

    Attributes:
        added_s: What their preparation adds to backward.
        beside_s: How long they keep the thread that selects.
        selected_s: When they leave that thread if it was free, and nothing was added, before them.
        link_s: How long they keep the link.
        behind_s: When they leave the link if nothing but the thread was busy before them, and was
            so until 0.
        end_s: When they leave the link if all was free, and nothing was added, before them.
        after_s: What they leave to do after backward and all first phases.
    """

    added_s: float = 0.0
    beside_s: float = 0.0
    selected_s: float = -math.inf
    link_s: float = 0.0
    behind_s: float = -math.inf
    end_s: float = -math.inf
    after_s: float = 0.0

    @staticmethod
    def of(arrival_s: float, cost: GroupCost) -> Effect:
        """Return the effect of one group.

        Args:
            arrival_s: When its last gradient is there, without any preparation.
            cost: Of the group.
        """
        prepare_s, beside_s, exchange_s, finish_s, decode_s, _ = cost
        ready_s = arrival_s + prepare_s + beside_s
        # What hooks prepare themselves does not wait for the thread
        selected_s = ready_s if beside_s else -math.inf
        behind_s = beside_s + exchange_s if beside_s else -math.inf
        return Effect(
            prepare_s,
            beside_s,
            selected_s,
            exchange_s,
            behind_s,
            ready_s + exchange_s,
            finish_s + decode_s,
        )

    def then(self, other: Effect) -> Effect:
        """Return the effect of these groups and then of others."""
        added_s, beside_s, selected_s, link_s, behind_s, end_s, after_s = self
        added, beside, selected, link, behind, end, after = other
        return Effect(
            added_s + added,
            beside_s + beside,
            max(selected_s + beside, added_s + selected),
            link_s + link,
            max(behind_s + link, beside_s + behind),
            max(end_s + link, selected_s + behind, added_s + end),
            after_s + after,
        )

    def step_s(self, backward_end_s: float) -> float:
        """Return how long a step of these groups takes.

        Args:
            backward_end_s: When backward ends, without any preparation.
        """
        return max(backward_end_s + self.added_s, self.end_s) + self.after_s
