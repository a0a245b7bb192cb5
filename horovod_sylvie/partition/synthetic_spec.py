"""What a synthetic graph shall be like, and how a user writes it down.

Here: `SyntheticSpec` and its text form, "synthetic:nodes=20000,degree=15". Not here: drawing the
graph (synthetic.py).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

PREFIX = "synthetic:"


@dataclass(frozen=True)
class SyntheticSpec:
    """What the graph shall be like.

    Invariant: every field is in its range; `ValueError` otherwise.

    Attributes:
        nodes: Nodes, at least 1.
        degree: Mean degree: twice the undirected edges over the nodes.
        exponent: Exponent of the power law of the expected degrees, above 2. Larger: more even.
        classes: Classes, of nearly equal size.
        mixing: Share of the edges that join two classes, in [0, 1]. Larger: harder to partition and
            to learn from neighbours.
        features: Feature columns.
        noise: Deviation of each feature around its class mean, where means are unit vectors.
            Larger: less can be learned from a node alone.
        label_noise: Share of the labels replaced by a class drawn at random.
        train: Share of the nodes to train on; likewise `val`, and the rest is the test set.
        val: Share of the nodes to validate on.
        seed: Seed of everything.
    """

    nodes: int = 20000
    degree: float = 15.0
    exponent: float = 2.5
    classes: int = 8
    mixing: float = 0.2
    features: int = 64
    noise: float = 1.0
    label_noise: float = 0.0
    train: float = 0.6
    val: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, low, high in (
            ("nodes", 1, 2**31 - 1),
            ("degree", 0, self.nodes - 1),
            ("exponent", 2.01, 100),
            ("classes", 1, self.nodes),
            ("mixing", 0, 1 if self.classes > 1 else 0),
            ("features", 1, 2**31 - 1),
            ("noise", 0, 1e30),
            ("label_noise", 0, 1),
            ("train", 0, 1),
            ("val", 0, 1 - self.train),
            ("seed", 0, 2**63),
        ):
            value = getattr(self, name)
            # Written so that NaN fails too.
            if not low <= value <= high:
                raise ValueError(
                    f"synthetic: expected {low} to {high:g} for '{name}', got {value}. "
                    f"Fields: {describe_fields()}."
                )

    @property
    def num_edges(self) -> int:
        """Number of undirected edges, E."""
        return round(self.nodes * self.degree / 2)


def describe_fields() -> str:
    """Return every key with its default, for messages and help."""
    return ", ".join(f"{entry.name}={entry.default}" for entry in fields(SyntheticSpec))


def parse_spec(text: str) -> SyntheticSpec:
    """Read the text form of a spec.

    Args:
        text: "synthetic:" and any of `key=value`, separated by commas; the rest are defaults.

    Returns:
        The spec.

    Raises:
        ValueError: An unknown, repeated or malformed key, or a value out of range.
    """
    kinds = {entry.name: int if entry.type == "int" else float for entry in fields(SyntheticSpec)}
    values: dict[str, float] = {}
    for item in text.removeprefix(PREFIX).split(","):
        if not item.strip():
            continue
        key, equals, number = (part.strip() for part in item.partition("="))
        if not equals or key not in kinds or key in values:
            why = "given twice" if key in values else "not a known key=value"
            raise ValueError(
                f"synthetic: expected comma-separated key=value, got {item.strip()!r} ({why}). "
                f"Keys and defaults: {describe_fields()}."
            )
        try:
            values[key] = kinds[key](number)
        except ValueError as error:
            wanted = "a whole number" if kinds[key] is int else "a number"
            raise ValueError(
                f"synthetic: expected {wanted} for '{key}', got {number!r}."
            ) from error
    return SyntheticSpec(**values)  # type: ignore[arg-type]
