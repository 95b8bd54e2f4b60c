"""The planted faults still fit the code; that they are caught, `make mutants` shows."""

from __future__ import annotations

from pathlib import Path

import pytest

import django_leasequeue
from tests.mutants.planted import PLANTED, Fault

PACKAGE = Path(django_leasequeue.__file__).parent


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: f"{fault.name}-{fault.file}")
def test_a_fault_can_be_planted_in_one_place(fault: Fault) -> None:
    text = (PACKAGE / fault.file).read_text()

    assert text.count(fault.old) == 1
    assert fault.new != fault.old
    assert fault.tests
