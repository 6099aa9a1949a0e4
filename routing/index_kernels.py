"""Decides what the packed index's arrays become: probes of its table, steps between owner sets, walks. Compiled.

A table is rows of two words: fingerprint, number of the owner set; number 0 is an empty row. Row 0 is the header: keys
in the table, and flags. A fingerprint's first row follows from its mixed upper half by order, so a table that grows is
copied from front to back; what is removed is closed up, so there are no graves. Owner sets: `index_sets`.

Every kernel that writes what look-ups read, and every look-up, runs without letting go of the interpreter's lock: each
is one step to all others. Those that only read, or write what nobody reads yet, let go of it.
"""

# mypy: ignore-errors
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from routing.index_sets import HALF, MIX, NEVER, ONE, ZERO, U, compiled, step

STALE, CLOSED = U(1), U(2)
"""Flags of a header: the array was replaced; residency in the space is closed towards the prompt's start."""
PIVOTS = 9
"""A jump asks for one key less than so many at a time."""
AHEAD = 16
"""So many keys before it is asked for, a key's row is fetched."""
DONE, LEARN, GROW = 0, 1, 2
BRUIJN = 0x03F79D71B4CB0A89
BIT = np.zeros(64, np.int64)
for _i in range(64):
    BIT[((1 << _i) * BRUIJN % 2**64) >> 58] = _i


@intrinsic
def _fetch(typing, table, row):
    """The row is on its way to the cache; nobody waits for it."""

    def code(context, builder, signature, args):
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, args[0])
        at = cgutils.get_item_pointer(context, builder, kind, array, [args[1], context.get_constant(types.intp, 0)])
        word, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        named = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        call = cgutils.get_or_insert_function(builder.module, named, "llvm.prefetch.p0")
        builder.call(call, [builder.bitcast(at, byte), word(0), word(3), word(1)])

    return types.void(table, row), code


@compiled()
def _bit(low):
    """Which bit a word of one bit is."""
    return BIT[(low * U(BRUIJN)) >> U(58)]


@compiled()
def _home(fp, cap):
    return ((((fp * MIX) >> HALF) * cap) >> HALF) + ONE


@compiled()
def _get(table, fp, cap):
    """Number of the key's owner set; 0 where nobody has it."""
    j = _home(fp, cap)
    number = table[j, 1]
    while number != ZERO and table[j, 0] != fp:
        j = j + ONE if j < cap else ONE
        number = table[j, 1]
    return number


# --------------------------------------------------------------------- tables
@compiled()
def _erase(table, hole, cap):
    """The row is free, and no later row stands further from its first one than it must."""
    j = hole
    while True:
        j = j + ONE if j < cap else ONE
        if table[j, 1] == ZERO:
            break
        home = _home(table[j, 0], cap)
        between = (hole < home <= j) if hole < j else (hole < home or home <= j)
        if not between:
            table[hole, 0], table[hole, 1] = table[j, 0], table[j, 1]
            hole = j
    table[hole, 1] = ZERO
    table[0, 0] -= ONE


@compiled()
def apply(table, steps, keys, start, slot, removing, source, limit):
    """The keys from `start` on are the slot's, or are not; where there is a source, they are not its any more.

    Answers (how far it came, why it stopped, and for LEARN the step that is missing: number, slot, removing).
    """
    cap, last, new = U(table.shape[0] - 1), NEVER, ZERO
    for i in range(start, min(start + AHEAD, keys.shape[0])):
        _fetch(table, _home(keys[i], cap))
    for i in range(start, keys.shape[0]):
        if i + AHEAD < keys.shape[0]:
            _fetch(table, _home(keys[i + AHEAD], cap))
        fp = keys[i]
        j = _home(fp, cap)
        number = table[j, 1]
        while number != ZERO and table[j, 0] != fp:
            j = j + ONE if j < cap else ONE
            number = table[j, 1]
        if number != last:
            got = step(steps, number, slot, removing)
            if got == NEVER:
                return i, LEARN, np.int64(number), slot, removing
            if source >= 0:
                second = step(steps, got, source, 1)
                if second == NEVER:
                    return i, LEARN, np.int64(got), source, 1
                got = second
            last, new = number, got
        if new == number:
            continue
        if number == ZERO:
            if table[0, 0] >= U(limit):
                return i, GROW, 0, 0, 0
            table[j, 0] = fp
            table[0, 0] += ONE
            table[j, 1] = new
        elif new == ZERO:
            _erase(table, j, cap)
        else:
            table[j, 1] = new
    return keys.shape[0], DONE, 0, 0, 0


@compiled(nogil=True)
def rehash(old, new):
    """Every key of `old` is in `new`, which is empty and has room; both are in the order of first rows."""
    cap = U(new.shape[0] - 1)
    for i in range(1, old.shape[0]):
        if old[i, 1] != ZERO:
            j = _home(old[i, 0], cap)
            while new[j, 1] != ZERO:
                j = j + ONE if j < cap else ONE
            new[j, 0], new[j, 1] = old[i, 0], old[i, 1]
    new[0, 0], new[0, 1] = old[0, 0], old[0, 1]


@compiled(nogil=True)
def load(table, keys, start, bounds, numbers):
    """Stretches of keys enter a table with room, `bounds[r]` being where stretch r ends, with the number of its set.

    Answers where it stopped: behind the last key, or at one that the table has with another set.
    """
    cap, r = U(table.shape[0] - 1), 0
    for i in range(start, keys.shape[0]):
        while bounds[r] <= i:
            r += 1
        if i + AHEAD < keys.shape[0]:
            _fetch(table, _home(keys[i + AHEAD], cap))
        if numbers[r] == 0:
            continue
        fp = keys[i]
        j = _home(fp, cap)
        while table[j, 1] != ZERO and table[j, 0] != fp:
            j = j + ONE if j < cap else ONE
        if table[j, 1] == ZERO:
            table[j, 0], table[j, 1] = fp, U(numbers[r])
            table[0, 0] += ONE
        elif table[j, 1] != U(numbers[r]):
            return i
    return keys.shape[0]


# -------------------------------------------------------------------- look-ups
@compiled()
def _count(word):
    """Bits that are set."""
    word = word - ((word >> ONE) & U(0x5555555555555555))
    word = (word & U(0x3333333333333333)) + ((word >> U(2)) & U(0x3333333333333333))
    word = (word + (word >> U(4))) & U(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * U(0x0101010101010101)) >> U(56))


@compiled()
def _tell(sets, number, held, owners, out, c, depth, most):
    """Who is held and not in the set is held no more, and told with the depth unless so many stay; answers the end."""
    stay = 0
    for q in range(held.shape[0]) if most else range(0):
        stay += _count(held[q] & sets[number, q]) if number else 0
    at = c + 2
    for q in range(held.shape[0]):
        gone = held[q] & ~sets[number, q] if number else held[q]
        held[q] ^= gone
        while gone and (most == 0 or stay < most):
            low = gone & (~gone + ONE)
            out[at] = owners[64 * q + _bit(low)]
            at += 1
            gone ^= low
    if at == c + 2:
        return c
    out[c], out[c + 1] = depth, at - c - 2
    return at


@compiled()
def _next(table, keys, number, i, cap):
    """The first index behind i whose set is another one; asks every key."""
    n = keys.shape[0]
    i += 1
    while i < n:
        if i + AHEAD < n:
            _fetch(table, _home(keys[i + AHEAD], cap))
        if _get(table, keys[i], cap) != number:
            break
        i += 1
    return i


@compiled()
def _jump(table, keys, number, i, cap, hints):
    """The same without most of the keys: a set that is left on a chain does not come back.

    Where the stretch that began with this key ended last time is asked first; the answer does not depend on it.
    """
    high, hint = keys.shape[0], keys[i] & U(hints.shape[0] - 1)
    start, guess = i, i + hints[hint]
    if i < guess <= high:
        if guess < high:
            _fetch(table, _home(keys[guess], cap))
        if _get(table, keys[guess - 1], cap) != number:
            high = guess - 1
        elif guess < high and _get(table, keys[guess], cap) != number:
            return guess
        else:
            i = guess - 1
    while high - i > 1:
        wide, low = max((high - i) // PIVOTS, 1), i
        for p in range(1, PIVOTS):
            if low + p * wide < high:
                _fetch(table, _home(keys[low + p * wide], cap))
        for p in range(1, PIVOTS):  # asked side by side: none waits for the memory of another
            k = low + p * wide
            if k < high and _get(table, keys[k], cap) == number:
                i = k
        if i < low + (PIVOTS - 1) * wide:
            high = min(i + wide, high)
    hints[hint] = high - start
    return high


@compiled()
def walk(table, sets, alive, owners, keys, out, held, hints, most):
    """Runs as [depth, how many, owner, …] one after the other in `out`; answers its length, -1 = take newer arrays."""
    if table[0, 1] & STALE or sets[0, 0]:
        return -1
    cap, jump, n = U(table.shape[0] - 1), table[0, 1] & CLOSED != ZERO, keys.shape[0]
    number = _get(table, keys[0], cap)
    left, c, i = ZERO, 0, 0
    for q in range(alive.shape[0]):
        held[q] = sets[number, q] & alive[q] if number else ZERO
        left |= held[q]
    while left:
        i = _jump(table, keys, number, i, cap, hints) if jump else _next(table, keys, number, i, cap)
        number = _get(table, keys[i], cap) if i < n else ZERO
        c = _tell(sets, number, held, owners, out, c, i, most)
        left = ZERO
        for q in range(held.shape[0]):
            left |= held[q]
    return c


@compiled()
def windowed(table, sets, alive, owners, keys, window, out, held, since, best):
    """Pairs of (depth, owner) in `out`: the deepest place before which the owner has `window` keys, or all."""
    if table[0, 1] & STALE or sets[0, 0]:
        return -1
    cap, n, i, c = U(table.shape[0] - 1), keys.shape[0], 0, 0
    held[:] = ZERO
    best[:] = 0
    while i < n:
        number = _get(table, keys[i], cap)
        end = _next(table, keys, number, i, cap)
        for q in range(alive.shape[0]):
            now = sets[number, q] & alive[q] if number else ZERO
            bits = now
            while bits:
                low = bits & (~bits + ONE)
                slot = 64 * q + _bit(low)
                if not held[q] & low:
                    since[slot] = i
                if since[slot] == 0 or end - since[slot] >= window:
                    best[slot] = end
                bits ^= low
            held[q] = now
        i = end
    for slot in range(owners.shape[0]):
        if best[slot]:
            out[c], out[c + 1] = best[slot], owners[slot]
            c += 2
    return c
