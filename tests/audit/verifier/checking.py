"""One command of the verifier, its report as JSON gives it, and the first place it names."""

import json
from pathlib import Path
from typing import Any

from audit.verifier import kvc_verify
from tests.audit.verifier.bundles import sample

LOG = sample(40)


def checked(path: Path, data: bytes | str | None = None, *options: str, command: str = "bundle",
            keys: str | None = None) -> dict[str, Any]:  # fmt: skip
    """The report of one command, as JSON gives it."""
    if data is not None:
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    given = [word for line in (LOG.keys() if keys is None else keys).splitlines() for word in ("--key", line)]
    report = kvc_verify.run(kvc_verify.arguments().parse_args([command, str(path), *options, *given]))
    found: dict[str, Any] = json.loads(report.as_json())
    assert report.as_text().endswith(found["verdict"].upper())
    return found


def first(found: dict[str, Any]) -> tuple[str, ...]:
    one = found["problems"][0]
    return (found["verdict"], one["code"], *(str(one[k]) for k in ("file", "line", "index", "field") if k in one))
