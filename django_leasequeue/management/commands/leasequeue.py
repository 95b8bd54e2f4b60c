"""What an operator does to a queue from a shell; one verb each, in a file of its own."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError, no_translations

from django_leasequeue.errors import InvalidTaskError
from django_leasequeue.management.verbs import VERBS


class Command(BaseCommand):
    """``manage.py leasequeue VERB``."""

    help = "Looks after the queues: see the help of each verb."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See BaseCommand."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        for name, verb in VERBS.items():
            verb.add_arguments(verbs.add_parser(name, help=verb.HELP, description=verb.HELP))

    # English, whatever the site's language: so is what Django's own commands say, and what scripts,
    # mails of cron and searches of logs look for.
    @no_translations
    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        """See BaseCommand."""
        try:
            VERBS[verb].run(self, **options)
        except InvalidTaskError as error:
            raise CommandError(str(error)) from error
