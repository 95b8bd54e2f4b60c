from __future__ import annotations

from django.contrib import admin
from django.urls import path
from django.views.generic import RedirectView

admin.site.site_header = "Northwind Traders"
admin.site.site_title = "Northwind Traders"
admin.site.index_title = "Back office"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
]
