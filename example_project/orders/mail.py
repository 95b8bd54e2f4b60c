"""Sends an invoice, and pretends to be a mail server that has two bad mailboxes."""

from __future__ import annotations

import smtplib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from django.core.mail import EmailMessage
from django.core.mail.backends import filebased

from .models import Invoice

FROM: Final = "Northwind Traders <orders@northwind.example>"
GREETING: Final = """\
Dear customer,

thank you for your order {order}. Your invoice {invoice} over {total} USD is attached.

Northwind Traders
"""


def invoice_mail(invoice: Invoice) -> EmailMessage:
    """The message that carries *invoice*.

    Its Message-ID follows from the invoice: a mailbox that gets it twice can tell.
    """
    order = invoice.order
    mail = EmailMessage(
        subject=f"Your invoice {invoice.number}",
        body=GREETING.format(order=order.number, invoice=invoice.number, total=invoice.total),
        from_email=FROM,
        to=[order.email],
        headers={"Message-ID": f"<{invoice.number}@northwind.example>"},
    )
    with invoice.pdf.open("rb") as pdf:
        mail.attach(f"{invoice.number}.pdf", pdf.read(), "application/pdf")
    return mail


def refused_for_good(error: BaseException) -> bool:
    """Whether a mail server said so: its codes from 500 on mean "do not try again"."""
    if not isinstance(error, smtplib.SMTPRecipientsRefused):
        return False
    return all(code >= 500 for code, _ in error.recipients.values())


class EmailBackend(filebased.EmailBackend):
    """Django's file backend, with mailboxes that refuse as real ones do.

    ``refuses-twice@…`` is busy the first two times a message comes; ``refuses@…`` isn't there.
    """

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        for message in email_messages:
            self.refuse(message)
        return super().send_messages(email_messages)

    def refuse(self, message: EmailMessage) -> None:
        for address in message.to:
            mailbox = address.partition("@")[0]
            if mailbox == "refuses":
                raise smtplib.SMTPRecipientsRefused({address: (550, b"5.1.1 No such mailbox")})
            if mailbox == "refuses-twice" and self.times_refused(message) < 2:
                raise smtplib.SMTPRecipientsRefused({address: (450, b"4.2.1 Busy, try later")})

    def times_refused(self, message: EmailMessage) -> int:
        """How often this message came before: one line each, in a file beside the mail."""
        line = message.extra_headers["Message-ID"] + "\n"
        path = Path(self.file_path, "refused.txt")
        with path.open("a+", encoding="utf-8") as book:
            book.seek(0)
            times = book.readlines().count(line)
            book.write(line)
        return times
