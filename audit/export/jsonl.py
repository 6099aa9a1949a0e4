"""Decides how records become `events.jsonl`, the canonical form: RFC 8785, one line each, bodies verbatim.

Put together from bytes: what was hashed is exported, not what some encoder makes of it again.
"""

import base64
from collections.abc import Callable, Iterable, Sequence

from audit.disclosure import Disclosed
from audit.export.records import Record

Path = Callable[[int], Sequence[bytes]]
"""Place in the log → the hashes that lead from there to the root."""


def lines(records: Iterable[Record], *, path: Path | None = None) -> bytes:
    """One line a record.

    Args:
        records: by ascending place.
        path: the proof of each record; None where one proof is for all.
    """
    found: list[bytes] = []
    for record in records:
        found += (b'{"body":', record.body or b"null", b',"index":%d,"leaf":"' % record.index)
        found += (base64.b64encode(record.leaf), b'"')
        if record.personal is not None:
            found += (b',"pii":', _personal(record.personal))
        if path is not None:
            hashes = b",".join(b'"' + base64.b64encode(one) + b'"' for one in path(record.index))
            found += (b',"proof":[', hashes, b"]")
        found.append(b"}\n")
    return b"".join(found)


def _personal(personal: Disclosed | str) -> bytes:
    if isinstance(personal, str):
        return b'"' + personal.encode() + b'"'
    return b'{"data":' + personal.text + b',"salt":"' + base64.b64encode(personal.salt) + b'"}'
