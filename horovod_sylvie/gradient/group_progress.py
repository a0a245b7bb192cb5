"""Which group a gradient belongs to, and whether it was the last that its group awaits."""

from __future__ import annotations

from collections.abc import Sequence

from .exchange import Exchange
from .parameter import ExchangedParameter


class GroupProgress:
    """Counts the gradients that each exchange still awaits in a step.

    Args:
        exchanges: All of them; no parameter is in two.
    """

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        self._exchanges = exchanges
        self._exchange_of = {
            id(parameter): exchange for exchange in exchanges for parameter in exchange.parameters
        }
        self._awaited: dict[int, int] = {}
        self.restart()

    def exchange_of(self, parameter: ExchangedParameter) -> Exchange:
        """Return the exchange of a parameter."""
        return self._exchange_of[id(parameter)]

    def complete(self, parameter: ExchangedParameter) -> Exchange | None:
        """Count a gradient; return its exchange if no other gradient is awaited there."""
        exchange = self.exchange_of(parameter)
        self._awaited[id(exchange)] -= 1
        return exchange if self._awaited[id(exchange)] == 0 else None

    def restart(self) -> None:
        """Begin a step: all gradients are awaited."""
        self._awaited = {id(each): len(each.parameters) for each in self._exchanges}
