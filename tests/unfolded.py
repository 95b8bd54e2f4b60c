"""A site with django-unfold, as its recipe has it; also its ROOT_URLCONF."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.test import override_settings
from django.urls import path
from unfold.sites import UnfoldAdminSite

from django_leasequeue.admin import PAGES
from django_leasequeue.admin.unfold import UnfoldMixin

site = UnfoldAdminSite()
for model, page in PAGES.items():
    site.register(model, type(page.__name__, (page, UnfoldMixin), {}))
urlpatterns = [path("admin/", site.urls)]


@contextmanager
def unfold() -> Iterator[None]:
    """The tests' own site wears it meanwhile."""
    with override_settings(
        INSTALLED_APPS=["unfold.apps.BasicAppConfig", *settings.INSTALLED_APPS],
        ROOT_URLCONF=__name__,
        # Named again, so that templates and static files are looked for anew.
        TEMPLATES=settings.TEMPLATES,
        STATICFILES_DIRS=settings.STATICFILES_DIRS,
    ):
        yield
