"""Decides where a key stands: (segment, offset), by an open-addressing map of 16 bytes a slot. Compiled by numba.

A key belongs to exactly one segment of at most `CAP` consecutive keys. A new key goes behind its parent if the parent
is the last key of an unfull segment, else it opens a segment; segments are never split. A slot is 64 bits of the key
mixed with the keyspace's number, then segment (32 bits), offset (8) and 24 more bits of the key. An entry whose offset
is at or beyond the segment's length is dead, so that dropping a segment needs no deletion here.

Source: `docs/decisions` "runs, not rows".
"""

# mypy: ignore-errors
import numpy as np
from numba import njit

CAP = 240
"""Keys of a segment: two rows to a page of PostgreSQL."""
U = np.uint64
MIX, TAG = U(0x9E3779B97F4A7C15), U(0xFFFFFF)
ROOT, ORPHAN = -2, -1
"""In place of a parent segment: there is no parent; the parent has no place (yet)."""
LOOSE = 0
"""In place of a root's offset, which is -1: nobody said that a prompt begins here."""
ADDING, MOVING = 1, 2


@njit(cache=True)
def _slot(tab, fp, tag):
    """Slot of (fp, tag), or -1 - the empty slot where it would go."""
    cap = tab.shape[0]
    i = np.int64((((fp * MIX) >> U(32)) * U(cap)) >> U(32))  # mixed again: poor keys must not make long probes
    while tab[i, 0] != U(0):
        if tab[i, 0] == fp and (tab[i, 1] & TAG) == tag:
            return i
        i += 1
        if i == cap:
            i = 0
    return -1 - i


@njit(cache=True)
def _mix(key, ks):
    fp = key[0] ^ (U(ks + 1) * MIX)
    return fp if fp != U(0) else U(1)


@njit(cache=True)
def _place(entry):
    return np.int64(entry >> U(32)), np.int64((entry >> U(24)) & U(255))


@njit(cache=True)
def _find(tab, seg_n, key, ks):
    """(segment, offset) of a key or (-1, -1)."""
    i = _slot(tab, _mix(key, ks), key[1] & TAG)
    if i >= 0:
        s, o = _place(tab[i, 1])
        if o < seg_n[s]:
            return s, o
    return np.int64(-1), np.int64(-1)


@njit(cache=True)
def _put(tab, key, ks, seg, off):
    """Insert or overwrite; 1 if a slot was newly taken."""
    fp, tag = _mix(key, ks), key[1] & TAG
    i = _slot(tab, fp, tag)
    j = i if i >= 0 else -1 - i
    tab[j, 0], tab[j, 1] = fp, (U(seg) << U(32)) | (U(off) << U(24)) | tag
    return 0 if i >= 0 else 1


@njit(cache=True)
def rehash(old, new, seg_n):
    """The living entries of `old` are in `new`; answers their number."""
    used = 0
    for i in range(old.shape[0]):
        if old[i, 0] != U(0):
            s, o = _place(old[i, 1])
            if o < seg_n[s]:
                j = -1 - _slot(new, old[i, 0], old[i, 1] & TAG)
                new[j, 0], new[j, 1] = old[i, 0], old[i, 1]
                used += 1
    return used


@njit(cache=True)
def bulk(tab, keys, first, n, ks, seg):
    """Whole segments are in the map: segment r has the n[r] keys from first[r] on."""
    used = 0
    for r in range(len(seg)):
        for o in range(n[r]):
            used += _put(tab, keys[first[r] + o], ks[r], seg[r], o)
    return used


@njit(cache=True)
def append(tab, keys, ks, seg, off):
    """The keys stand in `seg` from offset `off` on."""
    used = 0
    for i in range(len(keys)):
        used += _put(tab, keys[i], ks, seg, off + i)
    return used


@njit(cache=True)
def find_all(tab, seg_n, keys, ks, out):
    """Places of many keys."""
    for i in range(len(keys)):
        out[i, 0], out[i, 1] = _find(tab, seg_n, keys[i], ks[i])


@njit(cache=True)
def adopt(tab, seg_n, seg_ks, seg_up, seg_up_off, seg_parent, orphans, out):
    """Orphans whose parent has a place now get it. out: (segment, up, offset); answers their number.

    A parent that stands below the orphan itself would close a ring: such an orphan stays one for ever.
    """
    n = 0
    for i in range(len(orphans)):
        s = orphans[i]
        up, off = _find(tab, seg_n, seg_parent[s], seg_ks[s])
        if up < 0:
            continue
        u = up
        while u >= 0 and u != s and seg_n[u] > 0:
            u = np.int64(seg_up[u])
        if u == s:
            continue
        seg_up[s], seg_up_off[s] = up, off
        out[n, 0], out[n, 1], out[n, 2] = s, up, off
        n += 1
    return n


@njit(cache=True)
def _misplaced(seg_n, seg_up, seg_up_off, s, o, ps, po):
    """Whether the key at (s, o) was first reported with another parent than the one at (ps, po); ROOT = none."""
    if o > 0:
        return ps == ROOT or ps != s or po != o - 1
    if seg_up[s] == ROOT or ps == ROOT:
        return seg_up[s] != ps and seg_up[s] != ORPHAN
    return seg_up[s] >= 0 and seg_n[seg_up[s]] > 0 and (seg_up[s] != ps or seg_up_off[s] != po)


@njit(cache=True)
def resolve(tab, seg_n, seg_ks, seg_up, seg_up_off, seg_fam, nxt, keys, at, kind, ev_ks, parent, root, runs, masks,
            sums, offs, grow, born, missing, wrong):  # fmt: skip
    """Give every key of a batch its place, in one pass; new keys only for adds and moves.

    Event e has the keys at[e] … at[e+1]-1. A moved key that nobody announced opens a segment of its own, LOOSE.
    runs: (event, segment, first key, keys, family), with masks (offsets as 4 × u64) and sums (2 × u64 over the keys).
    grow: (segment, offset, length, first key) of newly placed keys. born: (segment, event, first key, up, offset).
    missing, wrong: per event, keys without a place, and keys known under another parent.
    """
    nr = ng = nb = used = 0
    for e in range(len(kind)):
        add, create, ks = kind[e] == ADDING, kind[e] != 0, ev_ks[e]
        ps, po = np.int64(ORPHAN), np.int64(-1)
        if add:
            if root[e]:
                ps = np.int64(ROOT)
            else:
                ps, po = _find(tab, seg_n, parent[e], ks)
        rs, growing = np.int64(-1), False
        for i in range(at[e], at[e + 1]):
            fp, tag = _mix(keys[i], ks), keys[i, 1] & TAG
            slot, s, o = _slot(tab, fp, tag), np.int64(-1), np.int64(-1)
            if slot >= 0:
                s, o = _place(tab[slot, 1])
                if o >= seg_n[s]:
                    s = np.int64(-1)
            if s < 0 and create:
                if add and ps >= 0 and po == seg_n[ps] - 1 and po + 1 < CAP:
                    s, o = ps, po + 1
                else:
                    s, o = nxt, np.int64(0)
                    nxt += 1
                    seg_ks[s], seg_up[s], seg_up_off[s], seg_fam[s] = ks, ps if add else ROOT, po if add else LOOSE, s
                    if add and ps >= 0 and seg_up[ps] >= 0:
                        seg_fam[s] = seg_fam[ps]  # below the root's children everything is one family
                    born[nb, 0], born[nb, 1], born[nb, 2], born[nb, 3], born[nb, 4] = s, e, i, seg_up[s], seg_up_off[s]
                    nb += 1
                seg_n[s] = o + 1
                if slot < 0:
                    slot = -1 - slot
                    used += 1
                tab[slot, 0], tab[slot, 1] = fp, (U(s) << U(32)) | (U(o) << U(24)) | tag
                if growing and grow[ng - 1, 0] == s:
                    grow[ng - 1, 2] += 1
                else:
                    grow[ng, 0], grow[ng, 1], grow[ng, 2], grow[ng, 3] = s, o, 1, i
                    ng += 1
                growing = True
            else:
                growing = False
                if s >= 0 and add and ps != ORPHAN:
                    wrong[e] += _misplaced(seg_n, seg_up, seg_up_off, s, o, ps, po)
            ps, po = s, o
            if s < 0:
                missing[e] += 1
                rs = np.int64(-1)
                continue
            if s != rs:
                runs[nr, 0], runs[nr, 1], runs[nr, 2], runs[nr, 3], runs[nr, 4] = e, s, i, 0, seg_fam[s]
                masks[nr], sums[nr] = U(0), U(0)
                rs = s
                nr += 1
            runs[nr - 1, 3] += 1
            masks[nr - 1, o >> 6] |= U(1) << U(o & 63)
            sums[nr - 1, 0] += keys[i, 0]
            sums[nr - 1, 1] += keys[i, 1]
            offs[i] = o
    return nr, ng, nb, nxt, used
