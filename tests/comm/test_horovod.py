"""The Horovod communicator before any rank is started; tests/launched has the rest."""

from __future__ import annotations

import pytest

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")

from horovod_sylvie.comm.horovod import HorovodCommunicator


def test_communicator_before_init_says_to_call_it() -> None:
    with pytest.raises(RuntimeError, match=r"Horovod is not initialised\. Call hvd\.init\(\) fir"):
        HorovodCommunicator()
