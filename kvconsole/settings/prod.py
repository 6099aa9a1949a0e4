"""Production: TLS in front, secrets from files, and no way to start with a demonstration's leftovers."""

from urllib.parse import urlsplit

from kvconsole.settings import outside
from kvconsole.settings.base import *
from kvconsole.settings.base import (
    ALLOWED_HOSTS,
    CONSOLE_URL,
    INGEST_URLS,
    SECRET_KEY,
    SIGNER_URL,
    TRUSTED_PROXIES,
    VALKEY_URL,
    WITNESS_URL,
    env,
)

DEBUG = False
PRODUCTION = True
DEMO = False
"""A demonstration account in the database keeps `web` from starting (`kvconsole.plumbing.refuse_bad_start`), as does
a key store or a metrics token that is not set: other processes need not be told of them."""

if len(SECRET_KEY) < 50 or SECRET_KEY.startswith(("development-only", "test-only", "django-insecure")):
    env.problems.append("KVC_SECRET_KEY is shorter than 50 characters or was made for development")
if urlsplit(CONSOLE_URL).scheme != "https":
    env.problems.append(f"KVC_CONSOLE_URL must be https: {CONSOLE_URL}")
BEHIND_PROXY = env.flag("KVC_BEHIND_PROXY")
env.problems += outside.plain_http(*INGEST_URLS, SIGNER_URL, *filter(None, [WITNESS_URL]))
env.problems += outside.broker(VALKEY_URL, plain=env.flag("KVC_VALKEY_PLAIN"))
env.problems += outside.proxies(TRUSTED_PROXIES, behind=BEHIND_PROXY)
if "*" in ALLOWED_HOSTS or urlsplit(CONSOLE_URL).hostname not in ALLOWED_HOSTS:
    env.problems.append("KVC_ALLOWED_HOSTS must name the host of KVC_CONSOLE_URL, and no wildcard")

REQUIRE_SECOND_FACTOR = env.flag("KVC_REQUIRE_SECOND_FACTOR", True)
SECURE_SSL_REDIRECT = True
SECURE_HSTS_SECONDS = 365 * 24 * 3600
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = True
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "__Host-kvc", "__Host-kvc-csrf"
if BEHIND_PROXY:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
WHITENOISE_USE_FINDERS = False
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedStaticFilesStorage"},
}
env.check()
