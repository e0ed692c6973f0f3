"""Numba kernels that turn blocks of text into columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel

# Classes of bytes, and what a column of the file is for.
BLANK, NEWLINE, COMMENT, SEPARATOR = 1, 2, 4, 8
SKIP, SOURCE, TARGET, WEIGHT, STAMP, TAG = range(6)

# How a block ended.
OK, MISSING, NOT_INTEGER, TOO_BIG, OUT_OF_RANGE, NEGATIVE, BAD_TAG, OPEN_QUOTE, JUNK, EXTRA = range(10)

# Positions in `options` and `out` of `parse_rows`.
AS_TEXT, SEPARATED, LOW, HIGH, TAG_BYTE, STAMP_REAL, EXACT = range(7)
POSITION, ROWS, LINE, FIELD, HARD = range(5)

# METIS: how a block ended, and positions in its state.
TOO_MANY_LINES, TOO_MANY_ARCS, NO_WEIGHT = range(20, 23)
VERTEX, TOKEN, IN_COMMENT, IN_LINE, ARCS, METIS_LINE, METIS_POSITION = range(7)

# Compressed sparse rows: what is wrong with a row.
NO_VERTEX, NOT_ASCENDING, BAD_WEIGHT, NO_EDGE = range(30, 34)

#: Bits of weights: from infinity on, they are infinite, not numbers, or negative.
_INFINITE, _MINUS_ZERO = np.uint64(0x7FF0000000000000), np.uint64(1 << 63)

_POWERS = 10.0 ** np.arange(23)
_LOWEST = np.iinfo(np.int64).min
_LOWEST_TENTH = -(2**63 // 10)


class Rows(NamedTuple):
    """Space for the rows of one block of text; a column that a table does not have has one element.

    Attributes
    ----------
    src, dst : int64
    weight : float64
    stamp, stamp_real : int64 and float64
    src_text, dst_text : uint8
        Ids as text, one after the other; that of a row ends at ``*_ends[row + 1]``.
    src_ends, dst_ends : int32
    hard : int64, shape (rows, 3)
        Numbers that need careful rounding, or are no numbers: (row, line, kind).
    hard_text, hard_ends : uint8 and int32
        Their texts.
    """

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    weight: NDArray[np.float64]
    stamp: NDArray[np.int64]
    stamp_real: NDArray[np.float64]
    src_text: NDArray[np.uint8]
    src_ends: NDArray[np.int32]
    dst_text: NDArray[np.uint8]
    dst_ends: NDArray[np.int32]
    hard: NDArray[np.int64]
    hard_text: NDArray[np.uint8]
    hard_ends: NDArray[np.int32]


@kernel
def _integer(buf, p):
    """Integer at ``buf[p:]``: (value, position after it, digits seen, fits int64)."""
    negative = buf[p] == 45
    if negative or buf[p] == 43:
        p += 1
    first = p
    value = np.int64(0)
    digit = np.int64(buf[p]) - 48
    while 0 <= digit <= 9:
        value = value * 10 - digit
        p += 1
        digit = np.int64(buf[p]) - 48
    if p - first > 18:
        # 19 digits may not fit: once more, counting down because the negative range is the larger one
        value = np.int64(0)
        for q in range(first, p):
            digit = np.int64(buf[q]) - 48
            if value < _LOWEST_TENTH or (value == _LOWEST_TENTH and digit > 8):
                return value, p, p - first, False
            value = value * 10 - digit
        if not negative and value == _LOWEST:
            return value, p, p - first, False
    return (value if negative else -value), p, p - first, True


@kernel
def _number(buf, p):
    """Number at ``buf[p:]``: (value, position after it, whether the value is exactly rounded).

    A mantissa below 2^53 times or divided by a power of ten up to 10^22 is one rounding away from the text;
    everything else is left to a correctly rounding library routine.
    """
    negative = buf[p] == 45
    if negative or buf[p] == 43:
        p += 1
    mantissa, digits, significant, exponent, point = np.int64(0), 0, 0, 0, False
    while True:
        digit = np.int64(buf[p]) - 48
        if 0 <= digit <= 9:
            digits += 1
            if significant > 0 or digit > 0:
                significant += 1
            if significant <= 18:
                mantissa = mantissa * 10 + digit
            if point:
                exponent -= 1
        elif digit == -2 and not point:
            point = True
        else:
            break
        p += 1
    if digits == 0:
        return 0.0, p, False
    if buf[p] == 101 or buf[p] == 69:
        power, p, seen, _ = _integer(buf, p + 1)
        if seen == 0 or seen > 6:
            return 0.0, p, False
        exponent += power
    if significant > 18 or mantissa > 9007199254740992 or exponent > 22 or exponent < -22:
        return 0.0, p, False
    value = mantissa / _POWERS[-exponent] if exponent < 0 else mantissa * _POWERS[exponent]
    return (-value if negative else value), p, True


@kernel
def _token_end(buf, p, classes, separated):
    """(first byte of the token, byte after it, where to go on, whether a quote is left open)."""
    if separated and buf[p] == 34:
        q = p + 1
        while buf[q] != 10:
            if buf[q] == 34:
                if buf[q + 1] != 34:
                    return p + 1, q, q + 1, False
                q += 1
            q += 1
        return p + 1, q, q, True
    q = p
    stop = NEWLINE | SEPARATOR if separated else NEWLINE | BLANK
    while classes[buf[q]] & stop == 0:
        q += 1
    after = q
    while q > p and classes[buf[q - 1]] == BLANK:
        q -= 1
    return p, q, after, False


@kernel
def parse_rows(buf, start, end, line, classes, kinds, options, space, out):
    """Parse whole lines of ``buf[start:end]``, the last byte of which is a newline, into `space` (Rows).

    Ids are integers, or texts with ``options[AS_TEXT]``. Returns how it ended; `out` holds the place.
    """
    src, dst, weight, stamp, stamp_real, src_text, src_ends, dst_text, dst_ends, hard, hard_text, hard_ends = space
    as_text, separated = options[AS_TEXT] != 0, options[SEPARATED] != 0
    low, high, stamp_is_real = options[LOW], options[HIGH], options[STAMP_REAL] != 0
    exact_width = options[EXACT] != 0
    boundary = BLANK | NEWLINE | SEPARATOR
    wanted = kinds.size
    rows, hards, src_used, dst_used, hard_used = 0, 0, 0, 0, 0
    status, field = OK, 0
    p = begin_of_line = start
    while p < end:
        begin_of_line = p
        while classes[buf[p]] == BLANK:
            p += 1
        if classes[buf[p]] & (NEWLINE | COMMENT):
            while buf[p] != 10:
                p += 1
            p += 1
            line += 1
            continue
        field = 0
        while True:
            kind = kinds[field]
            here = classes[buf[p]]
            is_id = kind in (SOURCE, TARGET)
            whole = False
            if kind != SKIP and here & (NEWLINE | SEPARATOR):
                status = MISSING
                break
            if (is_id and not as_text) or (kind == STAMP and not stamp_is_real):
                quoted = separated and buf[p] == 34
                value, p, digits, fits = _integer(buf, p + 1 if quoted else p)
                if quoted and buf[p] == 34:
                    p += 1
                if digits == 0 or classes[buf[p]] & boundary == 0:
                    status = NOT_INTEGER
                elif not fits:
                    status = TOO_BIG
                elif kind == STAMP:
                    stamp[rows] = value
                elif value < low or value > high:
                    status = OUT_OF_RANGE
                elif kind == SOURCE:
                    src[rows] = value
                else:
                    dst[rows] = value
                whole = True
            elif kind in (WEIGHT, STAMP):
                number, q, exact = _number(buf, p)
                if exact and classes[buf[q]] & boundary != 0:
                    whole = True
                    p = q
                    if kind == STAMP:
                        stamp_real[rows] = number
                    else:
                        weight[rows] = number
                        if number < 0:
                            status = NEGATIVE
            if not whole:
                quoted = separated and buf[p] == 34
                a, b, p, unclosed = _token_end(buf, p, classes, separated)
                if unclosed:
                    status = OPEN_QUOTE
                elif kind == TAG:
                    if b - a != 1 or buf[a] != options[TAG_BYTE]:
                        status = BAD_TAG
                elif kind != SKIP:
                    text, used = hard_text, hard_used
                    if is_id:
                        text, used = (src_text, src_used) if kind == SOURCE else (dst_text, dst_used)
                    q = a
                    while q < b:
                        text[used] = buf[q]
                        used += 1
                        # a doubled quote inside a quoted field is one quote
                        q += 2 if quoted and buf[q] == 34 else 1
                    if kind == SOURCE:
                        src_ends[rows + 1] = src_used = used
                    elif kind == TARGET:
                        dst_ends[rows + 1] = dst_used = used
                    else:
                        hard[hards, 0], hard[hards, 1], hard[hards, 2] = rows, line, kind
                        hards += 1
                        hard_ends[hards] = hard_used = used
            if status != OK:
                break
            while classes[buf[p]] == BLANK:
                p += 1
            here = classes[buf[p]]
            field += 1
            if separated and here & (SEPARATOR | NEWLINE) == 0:
                field -= 1
                is_id = kinds[field] == SOURCE or kinds[field] == TARGET
                status = NOT_INTEGER if is_id and not as_text else JUNK
                break
            if field == wanted:
                if exact_width and here & NEWLINE == 0:
                    status = EXTRA
                break
            if here & NEWLINE:
                status = MISSING
                break
            if separated:
                p += 1
                while classes[buf[p]] == BLANK:
                    p += 1
        if status != OK:
            break
        rows += 1
        while buf[p] != 10:
            p += 1
        p += 1
        line += 1
    out[POSITION], out[ROWS], out[LINE], out[FIELD], out[HARD] = begin_of_line, rows, line, field, hards
    return status


@kernel
def parse_metis(
    buf, start, end, n, extras, edge_weights, offsets, targets, weights, vertex_values, lines, state
):  # fmt: skip
    """Parse adjacency lines from ``buf[start:end]``, which ends between two tokens.

    The first `extras` numbers of a line are the vertex's own; then come neighbors (from 1), each followed
    by its weight where `edge_weights`. `state` carries over from block to block.
    """
    u, token, arcs, line = state[VERTEX], state[TOKEN], state[ARCS], state[METIS_LINE]
    in_comment, in_line = state[IN_COMMENT] != 0, state[IN_LINE] != 0
    status = OK
    p = start
    while p < end:
        c = buf[p]
        if c == 10:
            if in_comment:
                in_comment = False
            else:
                if u < n:
                    if token < extras:
                        status = MISSING
                        break
                    if edge_weights and (token - extras) % 2 == 1:
                        status = NO_WEIGHT
                        break
                    offsets[u + 1] = arcs
                    lines[u] = line
                u += 1
            token, in_line = 0, False
            line += 1
            p += 1
        elif in_comment or c == 32 or (9 <= c <= 13):
            p += 1
        elif c == 37 and not in_line:
            in_comment = True
            p += 1
        else:
            in_line = True
            if u >= n:
                status = TOO_MANY_LINES
                break
            value, q, digits, fits = _integer(buf, p)
            after = buf[q]
            if digits == 0 or not (after == 32 or (9 <= after <= 13)):
                status = NOT_INTEGER
                break
            if not fits:
                status = TOO_BIG
                break
            if token < extras:
                if value < 0:
                    status = NEGATIVE
                    break
                vertex_values[u, token] = value
            elif edge_weights and (token - extras) % 2 == 1:
                if value < 0:
                    status = NEGATIVE
                    break
                weights[arcs - 1] = value
            else:
                if value < 1 or value > n:
                    status = OUT_OF_RANGE
                    break
                if arcs == targets.size:
                    status = TOO_MANY_ARCS
                    break
                targets[arcs] = value - 1
                arcs += 1
            token += 1
            p = q
    state[VERTEX], state[TOKEN], state[ARCS], state[METIS_LINE] = u, token, arcs, line
    state[IN_COMMENT], state[IN_LINE], state[METIS_POSITION] = in_comment, in_line, p
    return status


class StoredRows(NamedTuple):
    """Arrays of a file of compressed sparse rows; one that it does not have has no elements.

    Attributes
    ----------
    offsets : int64
    targets : int32 or int64
    weights : uint64
        Bits of the weights.
    edges : int64
        Rows of edge attributes.
    """

    offsets: NDArray[np.int64]
    targets: NDArray[np.integer[Any]]
    weights: NDArray[np.uint64]
    edges: NDArray[np.int64]


@kernel(allocates=False)
def check_rows(stored, num_edges, first, last, factors):
    """Return (status, row, self-loops, repeated arcs, arcs to higher vertices, digest) of some rows.

    The digest is 0 over all rows if each arc to a higher vertex has one back, with the same weight and edge.
    """
    n, loops, repeated, higher, digest = stored.offsets.size - 1, 0, 0, 0, np.uint64(0)
    for u in range(first, last):
        begin, end = stored.offsets[u], stored.offsets[u + 1]
        if begin == end:
            continue
        if stored.targets[begin] < 0 or stored.targets[end - 1] >= n:
            return NO_VERTEX, u, 0, 0, 0, digest
        before, falls, wrong_weights, wrong_edges = -1, 0, 0, 0
        for i in range(begin, end):
            v = int(stored.targets[i])
            falls += v < before
            repeated += v == before
            before = v
            mixed = np.uint64(min(u, v)) * factors[0] + np.uint64(max(u, v)) * factors[1]
            if stored.weights.size:
                bits = stored.weights[i]
                wrong_weights += bits >= _INFINITE and bits != _MINUS_ZERO
                mixed = (mixed ^ (mixed >> np.uint64(32))) * factors[2] + bits
            if stored.edges.size:
                edge = stored.edges[i]
                wrong_edges += edge < 0 or edge >= num_edges
                mixed = (mixed ^ (mixed >> np.uint64(32))) * factors[3] + np.uint64(edge)
            mixed = (mixed ^ (mixed >> np.uint64(32))) * factors[4]
            mixed ^= mixed >> np.uint64(29)
            loops += u == v
            higher += u < v
            digest += np.uint64(u < v) * mixed - np.uint64(u > v) * mixed
        if falls:
            return NOT_ASCENDING, u, 0, 0, 0, digest
        if wrong_weights:
            return BAD_WEIGHT, u, 0, 0, 0, digest
        if wrong_edges:
            return NO_EDGE, u, 0, 0, 0, digest
    return OK, 0, loops, repeated, higher, digest
