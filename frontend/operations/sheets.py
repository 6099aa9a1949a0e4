"""Decides what a receipt's and a certificate's page show. Of a certificate only what its signed body says is shown.

The sheet stands in English and Chinese beside each other, whatever the language of the page: it is printed and given
away. Its words are of `kvcore.erasure_words`, and none is stronger than its class.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

import qrcode  # type: ignore[import-untyped]
from django.conf import settings
from django.http import Http404
from django.urls import reverse

from audit import certifying
from audit.certifying import Shown
from catalog.operation_reads import operation_row
from catalog.operation_views import receipt_view
from catalog.selectors import node_names
from frontend import formats
from frontend.operations import sentences
from frontend.operations.sheet_words import HEADS, LOOKS, METHODS, PARTS_EN, PARTS_ZH, SHEET
from frontend.operations.wording import WHY
from frontend.problems import problem as meaning
from frontend.wording import TIERS
from kvconsole.infra.access import Principal
from kvcore import erasure_words
from kvcore.erasure import REMARKS

WEAK = ("memset", "key_destroy", "unlink", "delete", "none")


class Layer(NamedTuple):
    """All copies of one tier: what was seen of them, and the lowest class of those that count."""

    tier: str
    copies: int
    blocks: int
    bytes: int
    cls: int
    methods: list[tuple[str, str]]


# --- receipts ---------------------------------------------------------------------------------------------------------


def receipt(step_id: UUID, principal: Principal) -> dict[str, Any]:
    """The page of a receipt, as the node signed it."""
    found = receipt_view(step_id)
    if found is None:
        raise Http404
    body = found["receipt"].get("body", {})
    staff = principal.tenant_id is None
    names = node_names(ids=[found["node"]]) if staff and found["node"] else {}
    said = meaning(found["code"])
    return {
        "receipt": found,
        "body": body,
        "detail": body.get("detail") or {},
        "at": formats.moment(body.get("at")),
        "node": next(iter(names), ""),
        "why": said.title if said else WHY.get(found["code"].partition(":")[0], found["code"]),
        "text": json.dumps(found["receipt"], ensure_ascii=False, indent=2, sort_keys=True),
        "one": operation_row(found["operation"]),
        "staff": staff,
    }


# --- certificates -----------------------------------------------------------------------------------------------------


def certificate_or_404(certificate_id: UUID) -> Shown:
    """The certificate, where the caller may see it."""
    found = certifying.certificate_of(certificate_id)
    if found is None:
        raise Http404
    return found


def certificate(found: Shown) -> dict[str, Any]:
    """The sheet of a certificate."""
    body = json.loads(found.body)
    counted = [copy for copy in body["copies"] if not copy["absent"]] or body["copies"]
    cls, told = body["class"], body["exceptions"]
    return {
        "found": found,
        "body": body,
        "cls": cls,
        "lead": [(code, sentences.certificate(cls, len(told), code)) for code in ("en", "zh")],
        "means": [(code, erasure_words.sentence(cls, code)) for code in ("en", "zh")],
        "selected": [(PARTS_EN[name], PARTS_ZH[name], _value(value)) for name, value in _flat(body["selector"])],
        "layers": layers(counted),
        "heads": HEADS,
        "sums": _sums(body, counted),
        "proofs": _proofs(found, body),
        "words": SHEET,
        "copies": len(counted),
        "bytes": sum(copy["bytes"] for copy in counted),
        "exceptions": _both(told),
        "remarks": _both([{"code": flag, "node": ""} for flag in body["flags"] if flag in REMARKS]),
        "development": not settings.PRODUCTION,
        "times": times(body["times"]),
        "issued": formats.moment(body["issued_at"]),
        "qr": qr(address(found)),
        "verify": address(found),
        "one": operation_row(found.operation),
        "file": f"kvc-certificate-{found.operation}.json",
    }


def _sums(body: Mapping[str, Any], counted: list[Mapping[str, Any]]) -> list[tuple[str, str, Any]]:
    """How much it was, in both languages."""
    return [
        ("Namespaces", "命名空间", formats.number(len(body["targets"]))),
        ("Blocks in the receipts", "回执中的缓存块", formats.number(sum(copy["blocks"] for copy in counted))),
        ("Bytes", "字节", formats.size(sum(copy["bytes"] for copy in counted))),
        ("Content", "内容", "not held by this system / 本系统不持有"),
    ]


def _proofs(found: Shown, body: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What it is checked by, in both languages."""
    told = [
        ("SHA-256 of the body", "正文 SHA-256", found.body_hash.hex()),
        ("Hash of the plan", "计划哈希", body["plan_hash"]),
        ("Root of the receipts", "回执根", body["receipts_root"]),
        ("Order in the log", "日志中的指令", f"{body['order'].get('index')} · {body['order'].get('event_id')}"),
        ("Operation", "操作", body["operation"]),
    ]
    told += (
        [("Completes the certificate of", "补充此操作的证明", body["supplements"])] if body.get("supplements") else []
    )
    return [*told, *(("Signature", "签名", line) for line in _signature(found.note))]


def layers(copies: Iterable[Mapping[str, Any]]) -> list[Layer]:
    """The copies by tier, hottest first."""
    by: dict[str, list[Mapping[str, Any]]] = {}
    for copy in copies:
        by.setdefault(copy["tier"], []).append(copy)
    found = []
    for tier in sorted(by, key=lambda name: TIERS.index(name) if name in TIERS else len(TIERS)):
        rows = by[tier]
        told = {(_method(copy), copy["evidence"].get("readback", "none")) for copy in rows if _asked(copy)}
        ordered = sorted(told, key=lambda pair: WEAK.index(pair[0]) if pair[0] in WEAK else len(WEAK))
        words = [tuple(", ".join((METHODS[m][at], LOOKS.get(r, LOOKS["none"])[at])) for at in (0, 1))
                 for m, r in ordered if m in METHODS]  # fmt: skip
        found.append(
            Layer(tier, len(rows), sum(copy["blocks"] for copy in rows), sum(copy["bytes"] for copy in rows),
                  min(copy["class"] for copy in rows), [(en, zh.replace(", ", "，")) for en, zh in words])
        )  # fmt: skip
    return found


def _method(copy: Mapping[str, Any]) -> str:
    """The technique, in a word that its class carries: what was overwritten and not read back is only removed."""
    technique = copy["evidence"].get("technique", "none")
    return "delete" if technique == "memset" and copy["class"] < 3 else technique


def _asked(copy: Mapping[str, Any]) -> bool:
    return any(one["kind"] in ("erase", "verify") for one in copy["receipts"])


def _flat(selector: Mapping[str, Any], depth: int = 0) -> list[tuple[str, Any]]:
    found = [(name, value) for name, value in selector.items() if name in PARTS_EN and value]
    return found + [pair for part in selector.get("and", ()) if depth < 1 for pair in _flat(part, depth + 1)]


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value):,}"
    return str(formats.stamp(formats.moment(value))) if isinstance(value, float) else str(value)


def _both(found: list[dict[str, str]]) -> list[dict[str, Any]]:
    english, chinese = sentences.exceptions(found, "en"), sentences.exceptions(found, "zh")
    return [{"code": en[0], "en": en[1], "zh": zh[1], "nodes": en[2]} for en, zh in zip(english, chinese, strict=True)]


def times(said: Mapping[str, str]) -> list[tuple[str, str, Any]]:
    """When each was reached, in both languages."""
    words = (("request", "Requested", "请求"), ("fence", "Fenced", "设围栏"),
             ("erase", "All places answered", "各处均已应答"), ("verify", "Looked at again", "已复查"))  # fmt: skip
    return [(en, zh, formats.moment(said[name])) for name, en, zh in words if name in said]


def _signature(note: str) -> list[str]:
    """The signature lines of the note."""
    return [line.removeprefix("\u2014 ") for line in note.splitlines() if line.startswith("\u2014 ")]


def address(found: Shown) -> str:
    """Where anybody is told whether a certificate of these bytes was issued, and can have the file checked."""
    return f"{settings.CONSOLE_URL.rstrip('/')}{reverse('page-verify')}?certificate={found.body_hash.hex()}"


def qr(text: str) -> dict[str, Any]:
    """The text as a QR code: side of the picture in modules, and the path of the dark ones."""
    made = qrcode.QRCode(error_correction=qrcode.constants.ERROR_CORRECT_M, border=2)
    made.add_data(text)
    made.make(fit=True)
    rows = made.get_matrix()
    dark = [f"M{x} {y}h1v1h-1z" for y, row in enumerate(rows) for x, on in enumerate(row) if on]
    return {"side": len(rows), "path": "".join(dark)}
