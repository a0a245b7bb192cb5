"""The exchanges of a step that are on their way, and the thread in which large ones are started.

On the host, selecting from a large group takes milliseconds that backward would wait for. So it is
done in a thread of its own, beside backward, one group after the other. On a GPU a hook only
enqueues work, and small groups take less time than waking a thread: they are started at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

import torch

from ..planning.layers import BESIDE_ELEMENTS
from .exchange import Exchange, Step
from .selected_exchange import SelectedExchange


class StartedExchanges:
    """The exchanges of one step, in the order in which their gradients were there.

    What an exchange raises while it is started in the thread is raised by `settle`.
    """

    def __init__(self) -> None:
        self._exchanges: list[Exchange] = []
        self._starting: list[Future[None]] = []
        self._thread: ThreadPoolExecutor | None = None  # made when it is needed

    def __iter__(self) -> Iterator[Exchange]:
        return iter(self._exchanges)

    def __contains__(self, exchange: Exchange) -> bool:
        return exchange in self._exchanges

    def start(self, exchange: Exchange, step: Step, *, in_backward: bool) -> None:
        """Start an exchange: here, or in the thread where that saves time.

        Args:
            exchange: Whose gradients are there; from here on nobody else may change them.
            step: The step.
            in_backward: Whether there is anything to do beside it.
        """
        self._exchanges.append(exchange)
        if not (in_backward and _is_worth_a_thread(exchange)):
            exchange.start(step)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="sylvie-select")
        self._starting.append(self._thread.submit(_start, exchange, step, torch.get_num_threads()))

    def settle(self) -> None:
        """Wait until all are started; raise what the first one raised that could not be."""
        wait(self._starting)
        for each in self._starting:
            each.result()

    def revert(self) -> None:
        """Take back what was selected and not applied, and begin a step."""
        wait(self._starting)
        self._starting.clear()
        for exchange in self._exchanges:
            exchange.revert()
        self._exchanges.clear()


def _is_worth_a_thread(exchange: Exchange) -> bool:
    if not isinstance(exchange, SelectedExchange):
        return False  # it is handed to Horovod as it is, or copied, which is soon done
    on_host = exchange.selected[0].tensor.device.type == "cpu"
    num_elements = sum(each.num_elements for each in exchange.parameters)
    return on_host and num_elements >= BESIDE_ELEMENTS


def _start(exchange: Exchange, step: Step, num_threads: int) -> None:
    # Neither is inherited from the thread that runs backward
    if torch.get_num_threads() != num_threads:
        torch.set_num_threads(num_threads)
    with torch.no_grad():
        exchange.start(step)
