"""What torch.compile must leave alone: messages that are sent while a model runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def not_compiled(function: Function) -> Function:
    """Run a function as it is, in a model that is compiled too: the graph ends before it."""
    left_out: Function = torch.compiler.disable(function)
    return left_out
