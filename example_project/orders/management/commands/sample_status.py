from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from django_leasequeue.queue import Queue
from example_project.orders.models import Invoice, Order


class Command(BaseCommand):
    help = "Say how far the work on the orders is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json", help="as JSON")

    def handle(self, *, as_json: bool, **options: Any) -> None:
        status = status_of_work()
        text = json.dumps(status) if as_json else "\n".join(f"{k}: {n}" for k, n in status.items())
        self.stdout.write(text)


def status_of_work() -> dict[str, int]:
    depths = [Queue(name).depth() for name in ("orders", "mail")]
    return {
        "orders": Order.objects.count(),
        "invoiced": Invoice.objects.count(),
        "mailed": Invoice.objects.filter(mailed_at__isnull=False).count(),
        "dead_letters": sum(d.dead for d in depths),
        "in_flight": sum(d.visible + d.scheduled + d.leased for d in depths),
    }
