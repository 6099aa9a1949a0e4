"""Decides when a code is right: of an authenticator once per step of its clock, a recovery code once for all.

The last step that was used is kept with the authenticator in PostgreSQL, so a code that somebody saw is of no use to
them on another process either.
"""

import time
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.core import context
from allauth.core.internal.cryptokit import compare_user_code, normalize_user_code
from allauth.mfa.base.forms import AuthenticateForm, ReauthenticateForm
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from allauth.mfa.utils import decrypt
from allauth.mfa.webauthn.forms import (
    AddWebAuthnForm,
    AuthenticateWebAuthnForm,
    LoginWebAuthnForm,
    ReauthenticateWebAuthnForm,
)
from django import forms
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import connections
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.addresses import client_address
from kvconsole.infra.sql import named
from tenants.accounts import guard
from tenants.services import login_refused

STEP_SECONDS, SKEW_STEPS = 30, 1


def totp_step(secret: str, code: str, now: float) -> int | None:
    """The step of the clock whose code it is, at most one off; None = of none."""
    given, current = normalize_user_code(code), int(now) // STEP_SECONDS
    for step in range(current - SKEW_STEPS, current + SKEW_STEPS + 1):
        if compare_user_code(actual=given, expected=format_hotp_value(hotp_value(secret, step))):
            return step
    return None


def accept(user: Any, code: str, now: float) -> Authenticator | None:
    """What the code belongs to, used up by this call and no other; None = it is wrong or was used."""
    found = {a.type: a for a in Authenticator.objects.filter(user_id=user.pk).exclude(type=Authenticator.Type.WEBAUTHN)}
    totp = found.get(Authenticator.Type.TOTP)
    secret = decrypt(totp.data["secret"]) if totp else ""
    step = totp_step(secret, code, now) if totp and secret else None
    if totp and step is not None:
        with connections[FLEET_PLANE].cursor() as cursor:
            cursor.execute(named("tenants")["totp_step"], (step, timezone.now(), totp.pk, step))
            return totp if cursor.rowcount else None
    codes = found.get(Authenticator.Type.RECOVERY_CODES)
    return codes if codes and codes.wrap().validate_code(code) else None


class LogInForm(forms.Form):
    """Name and password; says nothing about which of them is wrong."""

    username = forms.CharField(strip=False, max_length=150)
    password = forms.CharField(strip=False, max_length=256)
    user: Any = None

    def __init__(self, *args: Any, request: Any = None, **kwargs: Any) -> None:
        self.request = request
        super().__init__(*args, **kwargs)

    def clean(self) -> dict[str, Any]:
        """The person is known."""
        given: dict[str, Any] = super().clean() or {}
        if given.get("username") and given.get("password"):
            found = get_adapter().authenticate(self.request, username=given["username"], password=given["password"])
            if found is None:
                raise ValidationError("no", code="name-or-password")
            self.user = found
        return given


class _Guarded:
    user: Any
    cleaned_data: dict[str, Any]

    def clean_code(self) -> str:
        """The code, if it is right."""
        attempt = guard.begin(account=str(self.user.pk), address=client_address(context.request), kind="factor")
        code = str(self.cleaned_data["code"])
        authenticator = accept(self.user, code, time.time())
        if authenticator is None:
            login_refused(username=self.user.username, now=time.monotonic(), reason="code")
            raise ValidationError(_("The code is wrong, or was used."), code="incorrect_code")
        attempt.passed()
        authenticator.user = self.user
        self.authenticator = authenticator
        return code


class FactorForm(_Guarded, AuthenticateForm):  # type: ignore[misc]
    """The second step of a log-in."""


class ConfirmForm(_Guarded, ReauthenticateForm):  # type: ignore[misc]
    """A fresh proof by code."""


class _Careful:
    def clean_credential(self) -> Any:
        """The authenticator that signed.

        Raises:
            ValidationError: it is none of the person's, or what came is no answer of a browser at all.
        """
        try:
            return super().clean_credential()  # type: ignore[misc]
        except (LookupError, AttributeError, TypeError, ValueError, ArithmeticError) as e:
            raise ValidationError("malformed", code="incorrect_code") from e


class PasskeyLogInForm(_Careful, LoginWebAuthnForm):  # type: ignore[misc]
    """A passkey instead of name and password."""


class PasskeyFactorForm(_Careful, AuthenticateWebAuthnForm):  # type: ignore[misc]
    """A passkey as the second step."""


class PasskeyConfirmForm(_Careful, ReauthenticateWebAuthnForm):  # type: ignore[misc]
    """A fresh proof by passkey."""


class PasskeyForm(AddWebAuthnForm):  # type: ignore[misc]
    """A passkey is taken into use; of what the browser says only what is needed is kept."""

    def clean_credential(self) -> dict[str, Any]:
        """What is kept of it."""
        given = self.cleaned_data["credential"]
        try:
            parts = {name: str(given["response"][name])[:8192] for name in ("clientDataJSON", "attestationObject")}
            ids = {name: str(given[name])[:2048] for name in ("id", "rawId")}
            rk = bool(given.get("clientExtensionResults", {}).get("credProps", {}).get("rk"))
        except (LookupError, AttributeError, TypeError) as e:
            raise ValidationError("malformed", code="incorrect_code") from e
        if any("\0" in text for text in (*parts.values(), *ids.values())):
            raise ValidationError("malformed", code="incorrect_code")
        return {**ids, "type": "public-key", "response": parts, "clientExtensionResults": {"credProps": {"rk": rk}}}

    def clean(self) -> dict[str, Any]:
        """It answers our challenge."""
        try:
            return super().clean() or {}
        except (LookupError, AttributeError, TypeError, ValueError, ArithmeticError) as e:
            raise ValidationError("malformed", code="incorrect_code") from e


class TotpForm(ActivateTOTPForm):  # type: ignore[misc]
    """An authenticator is taken into use: its first code must be right."""

    def clean_code(self) -> str:
        """The code, if it is one of the secret that was shown."""
        attempt = guard.begin(account=str(self.user.pk), address=client_address(context.request), kind="factor")
        code = str(self.cleaned_data["code"])
        if totp_step(self.secret, code, time.time()) is None:
            raise ValidationError(_("The code is wrong. Is the authenticator's clock right?"), code="incorrect_code")
        attempt.passed()
        return code


class NewPassword(forms.Form):
    """A password, twice."""

    password1 = forms.CharField(strip=False, max_length=256)
    password2 = forms.CharField(strip=False, max_length=256)

    def __init__(self, *args: Any, user: Any = None, **kwargs: Any) -> None:
        self.user = user
        super().__init__(*args, **kwargs)

    def clean(self) -> dict[str, Any]:
        """Both are the same, and hard to guess."""
        given: dict[str, Any] = super().clean() or {}
        first, second = given.get("password1"), given.get("password2")
        if first and second and first != second:
            raise ValidationError(_("The two passwords are not the same."), code="mismatch")
        if first:
            validate_password(first, self.user)
        return given
