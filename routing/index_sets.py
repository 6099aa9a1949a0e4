"""Decides what owner sets are: their numbers, and the steps from one to another by one owner. Compiled.

`sets` is bit masks over owner slots, a row each; a row of zeros is a number that may be given. Row 0 holds nothing but
the mark that the array was replaced. `buckets` finds a set by its mask, `steps` the set that a step leads to.
"""

# mypy: ignore-errors
import numpy as np
from numba import njit

U = np.uint64
ZERO, ONE, HALF = U(0), U(1), U(32)
MIX = U(0x9E3779B97F4A7C15)
NEVER = U(2**64 - 1)
HIGH, FREE, BUCKETS, STEPS = 0, 1, 2, 3
"""Of `meta`: next number that was never given, numbers that may be given again, hashed sets, remembered steps."""


def compiled(nogil=False):
    """A decorator: machine code, kept on disk where the module's or the user's cache directory may be written."""

    def wrap(function):
        try:
            return njit(cache=True, nogil=nogil)(function)
        except RuntimeError:  # neither can be: it is compiled in every process
            return njit(nogil=nogil)(function)

    return wrap


@compiled()
def _key(number, slot, removing):
    return ((number << HALF) | (U(slot) << ONE) | U(removing)) + ONE


@compiled()
def step(steps, number, slot, removing):
    """The set with one owner more or less, as it was learnt; NEVER where it was not."""
    if removing and number == ZERO:
        return ZERO
    key, mask = _key(number, slot, removing), U(steps.shape[0] - 1)
    t = ((key * MIX) >> HALF) & mask
    while steps[t, 0] != ZERO:
        if steps[t, 0] == key:
            return steps[t, 1]
        t = (t + ONE) & mask
    return NEVER


@compiled()
def _remember(steps, key, new):
    mask = U(steps.shape[0] - 1)
    t = ((key * MIX) >> HALF) & mask
    while steps[t, 0] != ZERO:
        t = (t + ONE) & mask
    steps[t, 0], steps[t, 1] = key, new


@compiled()
def copy_steps(old, new):
    """All remembered steps are in `new`, which is larger."""
    for t in range(old.shape[0]):
        if old[t, 0] != ZERO:
            _remember(new, old[t, 0], old[t, 1])


@compiled()
def _bucket(sets, buckets, row):
    """Where a mask of `row` is, or would go."""
    h = ZERO
    for q in range(row.shape[0]):
        h = (h ^ row[q]) * MIX
        h ^= h >> HALF
    mask = U(buckets.shape[0] - 1)
    b = h & mask
    while buckets[b] != 0:
        same = True
        for q in range(row.shape[0]):
            if sets[buckets[b], q] != row[q]:
                same = False
                break
        if same:
            return b
        b = (b + ONE) & mask
    return b


@compiled()
def intern(sets, buckets, free, meta, row):
    """The number of the set whose mask is `row`, made if it is new; there must be room for one."""
    any_ = ZERO
    for q in range(row.shape[0]):
        any_ |= row[q]
    if any_ == ZERO:
        return 0
    b = _bucket(sets, buckets, row)
    if buckets[b] == 0:
        if meta[FREE]:
            meta[FREE] -= 1
            number = free[meta[FREE]]
        else:
            number = meta[HIGH]
            meta[HIGH] += 1
        sets[number] = row
        buckets[b] = number
        meta[BUCKETS] += 1
    return buckets[b]


@compiled()
def learn(sets, buckets, steps, free, meta, row, number, slot, removing):
    """The step from a set by one owner is remembered; there must be room for a set and a step."""
    for q in range(row.shape[0]):
        row[q] = sets[number, q] if number else ZERO
    bit = ONE << U(slot & 63)
    if removing:
        row[slot >> 6] &= ~bit
    else:
        row[slot >> 6] |= bit
    _remember(steps, _key(U(number), slot, removing), U(intern(sets, buckets, free, meta, row)))
    meta[STEPS] += 1


@compiled()
def rehash_sets(sets, buckets, high):
    """Every set is found by its mask again."""
    buckets[:] = 0
    for number in range(1, high):
        any_ = ZERO
        for q in range(sets.shape[1]):
            any_ |= sets[number, q]
        if any_ != ZERO:
            buckets[_bucket(sets, buckets, sets[number])] = number


@compiled(nogil=True)
def mark(table, seen):
    """Every set that some key of the table has is seen."""
    for j in range(1, table.shape[0]):
        seen[table[j, 1]] = 1


@compiled()
def sweep(sets, free, meta, seen):
    """Sets that were not seen may be given again; answers how many these are, without those that were free before."""
    gone, left = 0, 0
    for number in range(meta[HIGH] - 1, 0, -1):
        if seen[number]:
            continue
        any_ = ZERO
        for q in range(sets.shape[1]):
            any_ |= sets[number, q]
            sets[number, q] = ZERO
        gone += any_ != ZERO
        free[left] = number
        left += 1
    meta[FREE] = left
    meta[BUCKETS] -= gone
    return gone
