"""What an operator does to a queue from a shell."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, no_translations

from django_leasequeue.errors import InvalidTaskError
from django_leasequeue.management.terminal import Menu
from django_leasequeue.management.verbs import VERBS
from django_leasequeue.validation import storable

ALL: Final = Menu("Looks after the queues: see the help of each verb.", "verb", VERBS)


class Command(BaseCommand):
    """``manage.py leasequeue VERB``."""

    help = ALL.help

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See BaseCommand."""
        ALL.add_arguments(parser)

    # English, whatever the site's language: so is what Django's own commands say, and what scripts,
    # mails of cron and searches of logs look for.
    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        """See BaseCommand."""
        refuse_unstorable(options)
        try:
            ALL.run(self, **options)
        except InvalidTaskError as error:
            raise CommandError(str(error)) from error


def refuse_unstorable(options: Mapping[str, Any]) -> None:
    """Refuse what no database could be asked for: a shell's bytes that are no UTF-8, say.

    Raises:
        CommandError: naming the option.
    """
    for name, value in options.items():
        texts = value if isinstance(value, list) else [value]
        if not all(storable(text) for text in texts if isinstance(text, str)):
            raise CommandError(f"{name} must not contain NUL characters or lone surrogates")
