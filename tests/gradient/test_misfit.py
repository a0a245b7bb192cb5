"""When a link is calibrated anew because steps take longer than they should."""

from __future__ import annotations

from horovod_sylvie.gradient.misfit import Misfit


def test_steps_that_take_as_long_as_predicted_are_right() -> None:
    misfit = Misfit()
    assert [misfit.is_wrong(each, 1.0) for each in (1.0, 1.2, 0.5, 1.2)] == [False] * 4


def test_steps_that_get_longer_are_wrong_until_the_link_is_calibrated() -> None:
    misfit = Misfit()
    assert not misfit.is_wrong(1.0, 1.0)
    assert misfit.is_wrong(1.3, 1.0)
    assert misfit.is_wrong(1.3, 1.0)
    misfit.forget()
    assert not misfit.is_wrong(1.3, 1.0)


def test_what_a_calibration_has_not_mended_is_not_wrong_again() -> None:
    misfit = Misfit()
    assert [misfit.is_wrong(each, 1.0) for each in (1.6, 1.7, 1.9)] == [False] * 3
    assert misfit.is_wrong(2.01, 1.0)  # 1.25 times 1.6


def test_link_that_changes_right_after_a_calibration_is_wrong_all_the_same() -> None:
    misfit = Misfit()
    assert misfit.is_wrong(3.0, 1.0)
    assert not misfit.is_wrong(2.4, 1.0)


def test_model_that_fits_again_is_held_to_that() -> None:
    misfit = Misfit()
    assert not misfit.is_wrong(1.8, 1.0)
    assert not misfit.is_wrong(1.0, 1.0)
    assert misfit.is_wrong(1.4, 1.0)


def test_what_is_not_known_says_nothing() -> None:
    misfit = Misfit()
    assert not misfit.is_wrong(5.0, 0.0)
    assert not misfit.is_wrong(0.0, 1.0)
    assert not misfit.is_wrong(1.5, 1.0)  # still the first one after the start
    assert not misfit.is_wrong(1.5, 1.0)
