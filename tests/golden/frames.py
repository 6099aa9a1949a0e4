"""Reads the recorded messages of real engines that lie beside this file, and what each rank held after each phase."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
LIVE = ("vllm-s1-connectmode", "vllm-s2-small-lora", "vllm-s3-bytes-hash", "vllm-s7-crash-restart",
        "other_formats-format-v016", "other_formats-format-sglang")  # fmt: skip
END = b"\xff" * 8


class Message(NamedTuple):
    """One recorded message: topic and sequence, the payload, and whether it came live or as an answer to a replay."""

    phase: str | None
    kind: str
    lead: list[bytes]
    payload: bytes
    end: bool

    @property
    def seq(self) -> int:
        """The publisher's number of this batch."""
        return int.from_bytes(self.lead[-1], "big")


def messages(run: str) -> Iterator[Message]:
    """All messages of a run in order of arrival."""
    for line in (HERE / f"{run}.frames.jsonl").read_text().splitlines():
        raw = json.loads(line)
        if "lead_frames_hex" in raw:
            lead = [bytes.fromhex(x) for x in raw["lead_frames_hex"]]
        else:
            lead = [raw["topic"].encode(), raw["seq"].to_bytes(8, "big")]
        yield Message(raw.get("phase"), raw["kind"], lead, base64.b64decode(raw["payload_b64"]), lead[-1] == END)


def expected(run: str) -> list[tuple[str | None, int, set[str]]]:
    """(phase, rank, {medium/group/hash}) after the last live message of each phase."""
    rows = json.loads((HERE / f"{run}.expected.json").read_text())
    return [(row["after_phase"], row["rank"], set(row["blocks"])) for row in rows]
