"""An app that has its process traced, as a site's own would."""

from __future__ import annotations

from django.apps import AppConfig


class Traced(AppConfig):
    name = "tests.worker.traced"

    def ready(self) -> None:
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

        from django_leasequeue import tracing  # noqa: PLC0415  needs the apps

        tracing.install(TracerProvider())
