"""Settings of the example: what differs from place to place comes from the environment.

``.env.example`` lists every variable; a file ``.env`` beside it is read too, the environment wins.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Final

import django
import environ
from django.core.exceptions import ImproperlyConfigured

BASE_DIR: Final = Path(__file__).resolve().parent.parent

env = environ.Env()
environ.Env.read_env(BASE_DIR / ".env")


def with_two_writers(config: dict[str, Any]) -> dict[str, Any]:
    """The database's settings, on SQLite with what lets web and worker write side by side.

    IMMEDIATE: a transaction that began by reading and goes on to write would be refused, not made
    to wait. WAL: readers and the writer don't wait for each other.
    """
    if "ENGINE" not in config:
        raise ImproperlyConfigured(
            "DATABASE_URL must name a database: postgres://user@host/name or sqlite:///path"
        )
    if config["ENGINE"].endswith("sqlite3"):
        config["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
        } | config.get("OPTIONS", {})
    return config


DEBUG = env.bool("DEBUG", default=False)
# Required where DEBUG is off: no site should run on a key that everyone can read here.
SECRET_KEY = env.str("SECRET_KEY", **({"default": "for development only"} if DEBUG else {}))
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=[])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

DATABASES = {
    "default": with_two_writers(
        env.db_url("DATABASE_URL", default=f"sqlite:///{BASE_DIR / 'db.sqlite3'}")
    )
}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_leasequeue",
    "example_project.orders",
]
if importlib.util.find_spec("django.tasks") is None:
    INSTALLED_APPS.append("django_tasks")  # the backport, for Django 5.2

TASKS = {
    "default": {
        "BACKEND": "django_leasequeue.backend.LeaseQueueBackend",
        "QUEUES": ["orders", "mail"],
        "OPTIONS": {},
    }
}

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",  # the admin in the browser's language
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "example_project.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

USE_TZ = True
TIME_ZONE = env.str("TIME_ZONE", default="UTC")
STATIC_URL = "static/"

# Invoices, labels and uploads, and the mail that would have been sent.
FILES_ROOT = Path(env.str("FILES_ROOT", default=str(BASE_DIR / "var")))
MEDIA_ROOT = str(FILES_ROOT / "media")
MEDIA_URL = "media/"
MAIL_BACKEND = "example_project.orders.mail.EmailBackend"
MAIL_FOLDER = str(FILES_ROOT / "mail")
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": MAIL_BACKEND, "OPTIONS": {"file_path": MAIL_FOLDER}}}
else:
    EMAIL_BACKEND = MAIL_BACKEND
    EMAIL_FILE_PATH = MAIL_FOLDER

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {
        "django_leasequeue": {"handlers": ["console"], "level": env.str("LOG_LEVEL", "INFO")}
    },
}
