"""The peer's side of the routing index's bench: `RadixTree` of the wheel `ai-dynamo-runtime`, in a venv of its own.

Runs with the standard library and that wheel only: `python routing_peer.py FILE`, one line of JSON. What it is fed is
JSON, as its binding takes nothing else; making it is not timed.
"""

import array
import gc
import json
import sys
import time

MIX = 0x9E3779B97F4A7C15
LENGTHS = (128, 1024, 5120)


def resident():
    """Bytes of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def read(path):
    """The stream's arrays."""
    with open(path, "rb") as file:
        out = []
        for code in "qbiQii":
            count, values = array.array("q"), array.array(code)
            count.fromfile(file, 1)
            values.fromfile(file, count[0])
            out.append(values)
        keys = array.array("Q")
        keys.frombytes(file.read())
    return (*out, keys)


def tokens(keys):
    """Another hash of each block, as its tokens would have: it keys the tree by these."""
    return [k * MIX % 2**64 for k in keys]


def main(path):
    """Apply and look up."""
    from dynamo._core import RadixTree

    _, adds, owners, parents, lens, chain_lens, keys = read(path)
    gc.collect()
    tree, before, spent, at, events = RadixTree(), resident(), 0.0, 0, []
    wall = 0.0
    for i, add in enumerate(adds):
        mine = keys[at : at + lens[i]].tolist()
        at += lens[i]
        if add:
            blocks = [{"block_hash": k, "tokens_hash": t} for k, t in zip(mine, tokens(mine), strict=True)]
            data = {"stored": {"parent_hash": parents[i] or None, "blocks": blocks}}
        else:
            data = {"removed": {"block_hashes": mine}}
        events.append((owners[i], json.dumps({"event_id": i, "data": data}).encode()))
        if len(events) == 2000 or i == len(adds) - 1:
            started, clock = time.process_time(), time.perf_counter()
            for owner, body in events:
                tree.apply_event(owner, body)
            tree.find_matches([1])  # it hands events over to a thread of its own: wait for it
            spent += time.process_time() - started
            wall += time.perf_counter() - clock
            events = []
    gc.collect()
    out = {"apply_cpu": spent, "apply_wall": wall, "bytes": resident() - before, "look": {}}
    asked = []
    for n in chain_lens:
        asked.append(tokens(keys[at : at + min(n, max(LENGTHS))].tolist()))
        at += n
    for length in LENGTHS:
        took, chains = [], [c[:length] + list(range(1, 1 + length - len(c[:length]))) for c in asked]
        for chain in chains * 2:
            started = time.perf_counter()
            tree.find_matches(chain)
            took.append(time.perf_counter() - started)
        out["look"][length] = sorted(took)
        depths = [sorted(tree.find_matches(chain).scores.values())[::-1][:3] for chain in chains]
        out.setdefault("depths", {})[length] = depths
    print(json.dumps(out))


if __name__ == "__main__":
    main(sys.argv[1])
