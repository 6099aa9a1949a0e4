"""Settings common to all environments; everything from outside comes through `env`."""

from pathlib import Path

import plotly  # type: ignore[import-untyped]

from kvconsole.settings.env import Env

env = Env()
BASE_DIR = Path(__file__).resolve().parents[2]

SECRET_KEY = env.text("KVC_SECRET_KEY", None)
DEBUG = False
DEMO = False
"""Whether demonstration accounts may exist."""
ALLOWED_HOSTS = env.items("KVC_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")

# --- processes -----------------------------------------------------------
CONSOLE_URL = env.text("KVC_CONSOLE_URL", "http://127.0.0.1:8000")
INGEST_URLS = env.items("KVC_INGEST_URLS", "http://127.0.0.1:8001")
COMMANDER_URL = env.text("KVC_COMMANDER_URL", "http://127.0.0.1:8002")
COMMANDER_TOKEN = env.text("KVC_COMMANDER_TOKEN", "")
COMMAND_KEY_FILE = env.text("KVC_COMMAND_KEY_FILE", "")
AGENT_NETWORKS = env.items("KVC_AGENT_NETWORKS", "127.0.0.0/8")
KEYSTORE_DIR = env.text("KVC_KEYSTORE_DIR", "")
VALKEY_URL = env.text("KVC_VALKEY_URL", "redis://127.0.0.1:6379/0")
SHARD = env.number("KVC_SHARD", 0)
METRICS_TOKEN = env.text("KVC_METRICS_TOKEN", "")
"""Bearer that `/metrics` asks for; empty: open, for loopback."""

# --- database: one login role per kind of process ------------------------
DB_ROLES = ("migrate", "tenant", "operator", "ingest", "router", "seq", "audit")
DB_HOST = env.text("KVC_DB_HOST", "127.0.0.1")
DB_PORT = env.text("KVC_DB_PORT", "5432")
DB_NAME = env.text("KVC_DB_NAME", "kvconsole")
DB_ROLE = env.text("KVC_DB_ROLE", "operator")
"""The role of this process; `manage.py migrate` runs as `migrate`."""
DB_PASSWORDS = {role: env.text(f"KVC_DB_{role.upper()}_PASSWORD", "") for role in DB_ROLES}


def _database(role: str) -> dict[str, object]:
    options = {"options": "-c role=kv_owner" if role == "migrate" else "-c statement_timeout=15s"}
    options["connect_timeout"] = "5"  # a server that takes connections and says nothing is away too
    return {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": DB_HOST,
        "PORT": DB_PORT,
        "NAME": DB_NAME,
        "USER": f"kv_{role}",
        "PASSWORD": DB_PASSWORDS[role],
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": options,
    }


DATABASES = {"default": _database(DB_ROLE), "tenant": _database("tenant")}
DATABASE_ROUTERS = ["kvconsole.infra.access.PlaneRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "tenants.User"
AUTHENTICATION_BACKENDS = ["tenants.authentication.LoginBackend"]

INSTALLED_APPS = [
    "kvconsole",
    "tenants",
    "audit",
    "catalog",
    "routing",
    "frontend",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "channels",
    "csp",
    "django_htmx",
]
MIDDLEWARE = [
    "kvconsole.plumbing.Plumbing",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "kvconsole.infra.rest.RequestIdMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "kvconsole.infra.access.PrincipalMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "kvconsole.urls"
ASGI_APPLICATION = "kvconsole.asgi.application"
WSGI_APPLICATION = "kvconsole.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "frontend.context.console",
            ]
        },
    }
]

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
FORBIDDEN_VIEW = "frontend.views.forbidden"
CSRF_FAILURE_VIEW = "frontend.views.csrf_failed"

# --- sessions, cookies, headers ------------------------------------------
SESSION_COOKIE_NAME = "kvc"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 8 * 3600
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

# --- REST ----------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["tenants.authentication.ConsoleAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["kvconsole.infra.access.RoutePermission"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "kvconsole.infra.rest.problem_handler",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "KV Console",
    "VERSION": "1",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
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
TASK_SENDER = "kvconsole.celery.send"
"""How an app wakes a worker without knowing Celery: called with a task's name and an id."""
KEY_HOLDERS = {"node": "catalog.fleet.holder_refusal"}
"""Kind of principal → who knows whether such a holder may lease keys now; kinds that are not here need no leave."""
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
