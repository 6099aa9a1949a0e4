"""Settings common to all environments; everything from outside comes through `env`."""

from pathlib import Path

import plotly  # type: ignore[import-untyped]

from kvconsole.settings import outside
from kvconsole.settings.names import *
from kvconsole.settings.parts import *
from kvconsole.settings.processes import *
from kvconsole.settings.processes import VALKEY_URL, env

BASE_DIR = Path(__file__).resolve().parents[2]

SECRET_KEY = env.text("KVC_SECRET_KEY", None)
DEBUG = False
DEMO = False
"""Whether demonstration accounts may exist."""
ALLOWED_HOSTS = env.items("KVC_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")

# --- database: one login role per kind of process ------------------------
DB_ROLES = ("migrate", "tenant", "operator", "ingest", "router", "seq", "audit")
DB_HOST = env.text("KVC_DB_HOST", "127.0.0.1")
DB_PORT = env.text("KVC_DB_PORT", "5432")
DB_NAME = env.text("KVC_DB_NAME", "kvconsole")
DB_SSL = outside.database(env, DB_HOST)
DB_ROLE = env.text("KVC_DB_ROLE", "operator")
"""The role of this process; `manage.py migrate` runs as `migrate`."""
DB_PASSWORDS = {role: env.text(f"KVC_DB_{role.upper()}_PASSWORD", "") for role in DB_ROLES}


DB_POOL = env.number("KVC_DB_POOL", 0)
"""Connections of each role that the process's threads share; 0 = each thread keeps its own."""


def _database(role: str) -> dict[str, object]:
    said = "-c role=kv_owner" if role == "migrate" else "-c statement_timeout=15s"
    options: dict[str, object] = {"options": f"{said} -c timezone=UTC"}
    options |= {"connect_timeout": "5", **DB_SSL}  # a server that takes connections and says nothing is away too
    if role != "tenant":  # what asks to be prepared is (`infra.statements`), and nothing else; Django prepares nothing
        options["prepare_threshold"] = 2**31
    if DB_POOL:
        least = min(4, DB_POOL)  # made before they are needed
        options["pool"] = {"min_size": least, "max_size": DB_POOL, "timeout": 1.5}  # a page says within 2 s it is away
    return {
        "ENGINE": "kvconsole.infra.postgres",
        "HOST": DB_HOST,
        "PORT": DB_PORT,
        "NAME": DB_NAME,
        "USER": f"kv_{role}",
        "PASSWORD": DB_PASSWORDS[role],
        "CONN_MAX_AGE": 0 if DB_POOL or role == "tenant" else 60,  # no tenant finds what another left in a session
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": options,
    }


DATABASES = {"default": _database(DB_ROLE), "tenant": _database("tenant")}
DATABASE_ROUTERS = ["kvconsole.infra.access.PlaneRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "tenants.User"
AUTHENTICATION_BACKENDS = ["tenants.authentication.LoginBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator",
     "OPTIONS": {"user_attributes": ("username", "email")}},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]  # fmt: skip

ROOT_URLCONF = "kvconsole.urls"
ASGI_APPLICATION = "kvconsole.asgi.application"
WSGI_APPLICATION = "kvconsole.wsgi.application"

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "frontend" / "locale"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "static/"
STATIC_ROOT: Path | None = BASE_DIR / "staticfiles"
WHITENOISE_USE_FINDERS = True
STATICFILES_DIRS = [("vendor/plotly", Path(plotly.__file__).parent / "package_data")]
LOGIN_URL = "/login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login"
STEP_UP_URL = "/account/confirm"
FORBIDDEN_VIEW = "frontend.views.forbidden"
CSRF_FAILURE_VIEW = "frontend.views.csrf_failed"

# --- sessions, cookies, headers ------------------------------------------
SESSION_COOKIE_NAME = "kvc"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = env.number("KVC_SESSION_SECONDS", 8 * 3600)
"""A session ends so long after the log-in, whatever is done in it."""
SESSION_IDLE_SECONDS = env.number("KVC_SESSION_IDLE_SECONDS", 15 * 60)
"""… and so long after the last request; an open socket is none."""
STEP_UP_SECONDS = env.number("KVC_STEP_UP_SECONDS", 300)
"""How old a proof (password, second factor) may be for an act that cannot be taken back."""
REQUIRE_SECOND_FACTOR = env.flag("KVC_REQUIRE_SECOND_FACTOR")
"""Whether people with roles of the fleet reach only their own account until they have a second factor or a passkey."""
REQUIRE_TENANTS_SECOND_FACTOR = env.flag("KVC_REQUIRE_TENANTS_SECOND_FACTOR")
"""… and so for the people of tenants."""
TRUSTED_PROXIES = env.items("KVC_TRUSTED_PROXIES")
"""Networks whose X-Forwarded-For is believed."""
CSRF_COOKIE_HTTPONLY = True
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
"""Not `no-referrer`: browsers then send `Origin: null` with our own forms, which the CSRF check refuses."""
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:", "blob:"],
        "connect-src": ["'self'"],
        "font-src": ["'self'"],
        "frame-ancestors": ["'none'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
    }
}

# --- accounts: local, TOTP, passkeys, and OIDC where it is configured ------
ACCOUNT_ADAPTER = "tenants.accounts.adapter.Accounts"
MFA_ADAPTER = "tenants.accounts.adapter.Factors"
SOCIALACCOUNT_ADAPTER = "tenants.accounts.adapter.Linked"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_USER_MODEL_EMAIL_FIELD = None
ACCOUNT_PRESERVE_USERNAME_CASING = True
ACCOUNT_RATE_LIMITS = MFA_RATE_LIMITS = False
"""Guesses are counted in PostgreSQL (`tenants.accounts.guard`), not in a cache."""
ACCOUNT_REAUTHENTICATION_TIMEOUT = STEP_UP_SECONDS
ACCOUNT_LOGIN_TIMEOUT = 300
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = "KV Console"
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = False
SOCIALACCOUNT_ONLY = False
SOCIALACCOUNT_LOGIN_ON_GET = True
SOCIALACCOUNT_AUTO_SIGNUP = False
SOCIALACCOUNT_STORE_TOKENS = False
OIDC_URL = env.text("KVC_OIDC_URL", "")
"""Issuer of an OpenID Connect provider; empty = none is offered."""
OIDC_LINK_BY_NAME = env.flag("KVC_OIDC_LINK_BY_NAME")
"""Whether the provider's `preferred_username` is believed to be the log-in name here; else people link themselves."""
SOCIALACCOUNT_PROVIDERS = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "AUTH_PARAMS": {"prompt": "login"},
        "APPS": [
            {
                "provider_id": "oidc",
                "name": env.text("KVC_OIDC_NAME", "OpenID Connect"),
                "client_id": env.text("KVC_OIDC_CLIENT_ID", ""),
                "secret": env.text("KVC_OIDC_CLIENT_SECRET", ""),
                "settings": {"server_url": OIDC_URL},
            }
        ]
        if OIDC_URL
        else [],
    }
}

# --- REST ----------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["tenants.authentication.ConsoleAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["kvconsole.infra.access.RoutePermission"],
    "DEFAULT_RENDERER_CLASSES": ["kvconsole.infra.bodies.Json"],
    "DEFAULT_PARSER_CLASSES": ["kvconsole.infra.bodies.StrictJSON"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "kvconsole.infra.rest.problem_handler",
    "UNAUTHENTICATED_USER": None,
}
EVENTS_WRITER = "audit.services.events_write"
"""Who writes the events of a call together; `kvconsole.infra.evidence` hands them over."""
IDEMPOTENCY = "audit.idempotency.once"
"""Who sees to it that a repeated write has one effect; `kvconsole.infra.calls` wraps every write in it."""
RATE_LIMITS = {
    "token": env.text("KVC_RATE_TOKEN", "20000/10"),
    "tenant": env.text("KVC_RATE_TENANT", "40000/10"),
    "address": env.text("KVC_RATE_ADDRESS", "1200/60"),
}
"""Calls / seconds of one token (or person), one tenant, and one address of nobody known; 0/1 = no limit."""
WEB_PROCESSES = max(1, env.number("KVC_WEB_PROCESSES", 1))
"""How many `web` processes answer for the site: each gives this part of a quota, so all of them never more than it."""
SPECTACULAR_SETTINGS = {
    "TITLE": "KV Console",
    "VERSION": "1",
    "DESCRIPTION": "What `web` answers. Two other kinds of processes answer calls at addresses of their own: routers"
    " (`POST /api/v1/route`, `/api/v1/decisions`, `/api/v1/decisions/{id}/outcome`; docs/routing.md) and the writer"
    " (`POST /api/v1/ingest/events`, `/api/v1/ingest/inventory`; docs/protocol.md).",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "validatorUrl": None, "persistAuthorization": False},
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": [
        "tenants.schema.describe_problems",
    ],
}

# --- wake-ups ------------------------------------------------------------
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [VALKEY_URL], "prefix": "kvc"},
    }
}
FENCES_COMPARED = env.flag("KVC_FENCES_COMPARED", True)
"""Whether fences count only once they were compared with what lies outside the database (`tenants.whole`)."""
LOG_LATE_SECONDS = 60.0
"""So long an event may wait for sequencer, signer or witness; then nothing is destroyed, widened or exported."""
PRODUCTION = False
"""Whether what certificates say may bear a seal."""
CELERY_BROKER_URL = VALKEY_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"global_keyprefix": "kvc-celery:", "socket_connect_timeout": 1}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TASK_TIME_LIMIT = 300

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "filters": {"quiet": {"()": "kvconsole.infra.outage.Quiet"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["quiet"]}},
    "root": {"handlers": ["console"], "level": "INFO"},
    "loggers": {
        "django": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
        "celery": {"level": "WARNING"},
        "uvicorn.error": {"filters": ["quiet"]},  # has a handler of its own
    },
}
