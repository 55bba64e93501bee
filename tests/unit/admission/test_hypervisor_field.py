"""`spec.hypervisor`: a class, `auto`, or `auto/` and what counts."""

from typing import Any

import pytest

from anyvisor.admission import hypervisor
from anyvisor.admission.result import Causes


@pytest.mark.parametrize("named", [None, "", "std", "a.b-c", "auto", "auto/memory", "auto/start,isolation", "auto/"])
def test_what_may_stand_there(named: Any):
    causes = Causes()
    hypervisor.check("spec", {} if named is None else {"hypervisor": named}, causes)
    assert list(causes) == []


@pytest.mark.parametrize("named", [7, "Std", "a/b", "auto/beauty", "auto/memory,beauty", "automatic/memory", " auto"])
def test_what_may_not(named: Any):
    causes = Causes()
    hypervisor.check("spec", {"hypervisor": named}, causes)
    (cause,) = list(causes)
    assert cause.field == "spec.hypervisor"
    assert "features, isolation, memory, start" in cause.message
