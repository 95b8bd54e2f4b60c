"""What errors of a kind have in common."""

from __future__ import annotations

import pytest

from django_leasequeue.failure import fingerprint


@pytest.mark.parametrize(
    ("summary", "common"),
    [
        ("", None),
        ("ValueError: no order 17 of 'ada'", "ValueError: no order # of '…'"),
        (
            "Http404: no page /orders/0199f2b0-7c1e-7a55-8d1c-1f0e3c5a9b11/",
            "Http404: no page /orders/#/",
        ),
        ("KeyError: 'it''s'", "KeyError: '…''…'"),
        ("can't decode byte 0xff in position 3", "can't decode byte # in position #"),
        ("no mailbox ada.l+x@example.com, 1,234.50 due", "no mailbox #, # due"),
        ('bad "value 7" and \'one that was cut', "bad '…' and '…'"),
        ("PaymentError: card declined", "PaymentError: card declined"),
    ],
)
def test_errors_of_a_kind_have_a_fingerprint_in_common(summary: str, common: str | None) -> None:
    assert fingerprint(summary) == common


def test_a_fingerprint_is_no_longer_than_a_summary() -> None:
    assert len(fingerprint("''" * 100) or "") == 200
