"""What groups do to a step: small maps that compose, so that plans need not be run from the start.

Groups, one after the other, add to backward and to what is left to do after it, and they move the
time at which the link is free. Whatever stands before them, they do it in the same way; so the
effect of a plan is that of its parts, one on the other, and `Effect.step_s` is what
`timeline.simulate` finds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .timeline import GroupCost


class Effect(NamedTuple):
    """What groups do to what stands before them; by default, what no group does.

    Attributes:
        added_s: What their preparation adds to backward.
        link_s: How long they keep the link.
        end_s: When they leave the link if it was free, and nothing was added, before them.
        after_s: What they leave to do after backward and all first phases.
    """

    added_s: float = 0.0
    link_s: float = 0.0
    end_s: float = -math.inf
    after_s: float = 0.0

    @staticmethod
    def of(arrival_s: float, cost: GroupCost) -> Effect:
        """Return the effect of one group.

        Args:
            arrival_s: When its last gradient is there, without any preparation.
            cost: Of the group.
        """
        prepare_s, exchange_s, finish_s, decode_s, _ = cost
        end_s = arrival_s + prepare_s + exchange_s
        return Effect(prepare_s, exchange_s, end_s, finish_s + decode_s)

    def then(self, other: Effect) -> Effect:
        """Return the effect of these groups and then of others."""
        added_s, link_s, end_s, after_s = self
        return Effect(
            added_s + other.added_s,
            link_s + other.link_s,
            max(end_s + other.link_s, added_s + other.end_s),
            after_s + other.after_s,
        )

    def step_s(self, backward_end_s: float) -> float:
        """Return how long a step of these groups takes.

        Args:
            backward_end_s: When backward ends, without any preparation.
        """
        return max(backward_end_s + self.added_s, self.end_s) + self.after_s
