"""Decides what every refusal of a router is called; words for people are `frontend.problems`'."""

from kvconsole.infra.rest import CODES, add_codes

ROUTING: dict[str, tuple[int, str]] = {
    "no-candidates": (409, "No worker may take the request"),
    "unknown-candidate": (422, "A named candidate is no node of the fleet"),
    "keys-length": (422, "The block keys do not have the length that was said"),
    "too-many-blocks": (422, "More blocks than one request can have"),
    "prompt-mismatch": (422, "The prompt's tokens and its blocks do not fit together"),
    "token-ids-refused": (403, "Only a gateway may send token ids"),
    "token-beyond-vocabulary": (422, "A token id is beyond the model's vocabulary"),
    "slo-invalid": (422, "A service level is not a positive number of milliseconds"),
    "outcome-known": (409, "The outcome of the decision is known already"),
    "outcome-invalid": (422, "A measured figure is not a number of its kind"),
    "policy-invalid": (422, "The policy cannot be used"),
    "policy-model-taken": (409, "Another policy decides this model's requests"),
}
add_codes(ROUTING)


class Refusal(Exception):
    """A request is refused; nothing was decided.

    Args:
        code: of `CODES`.
        detail: what was wrong this time, without anything secret or foreign.
        pointer: to the field.
        retry: seconds after which a repetition makes sense.
    """

    def __init__(self, code: str, detail: str = "", *, pointer: str = "", retry: float | None = None) -> None:
        super().__init__(code)
        self.code, self.detail, self.pointer, self.retry = code, detail, pointer, retry
        self.status, self.title = CODES[code]
