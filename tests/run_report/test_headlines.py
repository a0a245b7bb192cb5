"""Headlines: the newest figures, and nothing about what is not known."""

from __future__ import annotations

from horovod_sylvie.run_report.headlines import headlines
from tests.run_report.documents import make_document, without


def test_headlines_are_the_newest_figures() -> None:
    found = [(each.name, each.value, each.detail) for each in headlines(make_document())]
    assert found == [
        ("loss", "0.333", "in epoch 6"),
        ("validation accuracy", "91.7 %", "in epoch 6"),
        ("test accuracy", "90.0 %", "in epoch 6"),
        ("gradients, per step and rank", "1,000 B", "40.0× less than dense"),
        ("halo rows, per epoch, all ranks", "200 B", "28.0× less than full precision"),
        ("an epoch, median", "200 ms", "35 % of it waiting for other ranks"),
    ]


def test_what_is_not_known_has_none() -> None:
    document = without(make_document(), "loss", "accuracy", "seconds", "gradients", "halo")
    assert headlines(document) == []
    assert headlines(make_document(0)) == []


def test_loss_that_is_lost_says_since_when() -> None:
    document = make_document(loss=lambda epoch: None if epoch in (2, 5, 6) else 1.0)
    first = headlines(document)[0]
    assert (first.value, first.detail) == ("not a number", "since epoch 5")


def test_accuracy_is_the_newest_that_was_measured() -> None:
    document = make_document()
    del document["epochs"][-1]["accuracy"]
    document["epochs"][-2]["accuracy"]["test"] = None
    details = {each.name: each.detail for each in headlines(document)}
    assert details["validation accuracy"] == "in epoch 5"
    assert details["test accuracy"] == "in epoch 4"


def test_what_saves_nothing_says_what_it_is_compared_with() -> None:
    document = make_document()
    for epoch in document["epochs"]:
        epoch["gradients"]["bytes_dense_per_step"] = 1000.0
    details = {each.name: each.detail for each in headlines(document)}
    assert details["gradients, per step and rank"] == "dense: 1,000 B"
