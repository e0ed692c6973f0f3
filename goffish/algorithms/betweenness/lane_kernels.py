"""Rows of `LANES` float64 values as one machine vector: the steps of a batched search that touch the arcs.

A batch runs one search per lane. What the searches hold for a vertex is one row, one cache line; a step adds the rows
of all neighbors, whatever their lanes are about, and keeps the lanes that a bit mask names. So an arc costs one
vector addition for the whole batch and no branch. LLVM splits the vectors on processors with shorter registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: Searches in a batch: one cache line of float64, one bit each in a byte.
LANES = 8
#: Rows are padded to multiples of so many arcs (a power of two). Most vertices of a sparse graph then take one round:
#: how many arcs a vertex has cannot be predicted and costs more than a row that is added in vain.
STRIDE = 4
#: Largest number of shortest paths that plain float64 counts are trusted with.
MOST = 1e300

_DOUBLE, _INDEX = ir.DoubleType(), ir.IntType(64)
_ROW = ir.VectorType(_DOUBLE, LANES)
_BITS, _FLAGS = ir.IntType(LANES), ir.VectorType(ir.IntType(1), LANES)
_ALIGN = 8


class _Rows:
    """An array whose elements `LANES * v …` are row v."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self.builder = builder
        self.data = context.make_array(kind)(context, builder, value).data

    def _place(self, row: Any) -> Any:
        start = self.builder.gep(self.data, [self.builder.mul(row, _INDEX(LANES))])
        return self.builder.bitcast(start, _ROW.as_pointer())

    def load(self, row: Any) -> Any:
        return self.builder.load(self._place(row), align=_ALIGN)

    def store(self, row: Any, value: Any) -> None:
        self.builder.store(value, self._place(row), align=_ALIGN)


def _spread(builder: Any, value: Any) -> Any:
    """A row that holds `value` in every lane."""
    single = builder.insert_element(ir.Constant(_ROW, ir.Undefined), value, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(single, ir.Constant(_ROW, ir.Undefined), lanes)


def _zeros() -> Any:
    return ir.Constant(_ROW, [0.0] * LANES)


def _sum_of_rows(context: Any, builder: Any, rows: _Rows, kind: Any, targets: Any, row: Any) -> Any:
    """The sum of the rows ``targets[row[0]:row[1]]``, a multiple of `STRIDE` of them."""
    first, last = (builder.extract_value(row, k) for k in (0, 1))
    data = context.make_array(kind)(context, builder, targets).data
    total = cgutils.alloca_once_value(builder, _zeros())
    with cgutils.for_range_slice(builder, first, last, _INDEX(STRIDE), _INDEX) as (at, _):
        terms = []
        for k in range(STRIDE):
            place = builder.gep(data, [builder.add(at, _INDEX(k))])
            terms.append(rows.load(builder.zext(builder.load(place), _INDEX)))
        while len(terms) > 1:  # pairwise: short chains of additions
            terms = [builder.fadd(left, right) for left, right in zip(terms[::2], terms[1::2], strict=True)]
        builder.store(builder.fadd(builder.load(total), terms[0]), total)
    return builder.load(total)


@intrinsic
def reach(
    typing_context: Any, targets: Any, row: Any, paths: Any, counts: Any, following: Any, vertex: Any, times: Any,
    seen: Any,
) -> Any:  # fmt: skip
    """Let `vertex` be found in the lanes that have not `seen` it and have a neighbor on the last level.

    Parameters
    ----------
    targets, row
        The padded arcs ``targets[row[0]:row[1]]`` (unsigned) come from the neighbors that may be before `vertex`.
    paths : float64 rows
        Paths through each vertex of the last level, 0 elsewhere.
    counts, following : float64 rows
        Receive, in the lanes that find the vertex, the number of paths to one of its members and, in `following`,
        through all `times` of them.
    vertex : uint64
    times : float64
    seen : uint8
        Bit mask.

    Returns
    -------
    uint8
        The lanes that found the vertex; where there are none, nothing was written.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        rows = [_Rows(context, builder, kinds[i], args[i]) for i in (2, 3, 4)]
        total = _sum_of_rows(context, builder, rows[0], kinds[0], args[0], args[1])
        unseen = builder.bitcast(builder.not_(args[7]), _FLAGS)
        fresh = builder.and_(unseen, builder.fcmp_ordered(">", total, _zeros()))
        bits = builder.bitcast(fresh, _BITS)
        with builder.if_then(builder.icmp_unsigned("!=", bits, _BITS(0))):
            before = rows[1].load(args[5])
            rows[1].store(args[5], builder.select(fresh, total, before))
            through = builder.fmul(total, _spread(builder, args[6]))
            rows[2].store(args[5], builder.select(fresh, through, _zeros()))
        return bits

    array = types.Array(types.float64, 1, "C")
    return types.uint8(
        targets, types.UniTuple(types.uint64, 2), array, array, array, types.uint64, types.float64, types.uint8
    ), generate


@intrinsic
def depend(
    typing_context: Any, targets: Any, row: Any, shares: Any, counts: Any, following: Any, vertex: Any, members: Any,
    sources: Any, lanes: Any,
) -> Any:  # fmt: skip
    """Add up the dependencies of `vertex` in the lanes of its level.

    Equation (4) of docs/specs/betweenness.md, section 3.6, with multiplicities.

    Parameters
    ----------
    targets, row
        The padded arcs ``targets[row[0]:row[1]]`` lead to the neighbors that may come after `vertex`.
    shares : float64 rows
        (mass + dependency) / paths of the vertices one level down, 0 elsewhere.
    counts : float64 rows
        Paths to each vertex.
    following : float64 rows
        Receives the share of `vertex`, 0 outside `lanes`.
    vertex : uint64
    members : two float64
        Number of the vertex's members; its weight as a target.
    sources : float64 row
        Weight of the source of each lane.
    lanes : uint8
        Bit mask.

    Returns
    -------
    float64
        The sum over `lanes` of source weight times dependency; NaN if there are more than `MOST` paths in one of them.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        rows = [_Rows(context, builder, kinds[i], args[i]) for i in (2, 3, 4)]
        total = _sum_of_rows(context, builder, rows[0], kinds[0], args[0], args[1])
        times, mass = (_spread(builder, builder.extract_value(args[6], k)) for k in (0, 1))
        wanted = builder.bitcast(args[8], _FLAGS)
        paths = rows[1].load(args[5])
        through = builder.fmul(builder.fmul(total, paths), times)
        own = builder.fmul(_Rows(context, builder, kinds[7], args[7]).load(_INDEX(0)), mass)
        share = builder.fdiv(builder.fadd(own, through), paths)
        rows[2].store(args[5], builder.select(wanted, share, _zeros()))
        kept = builder.select(wanted, through, _zeros())
        kind = ir.FunctionType(_DOUBLE, [_DOUBLE, _ROW])
        add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fadd.v{LANES}f64")
        value = builder.call(add, [_DOUBLE(0.0), kept], fastmath=("reassoc",))
        many = builder.and_(wanted, builder.fcmp_ordered(">", paths, ir.Constant(_ROW, [MOST] * LANES)))
        failed = builder.icmp_unsigned("!=", builder.bitcast(many, _BITS), _BITS(0))
        return builder.select(failed, _DOUBLE(float("nan")), value)

    array = types.Array(types.float64, 1, "C")
    return types.float64(
        targets, types.UniTuple(types.uint64, 2), array, array, array, types.uint64, types.UniTuple(types.float64, 2),
        array, types.uint8,
    ), generate  # fmt: skip


@intrinsic
def clear_row(typing_context: Any, rows: Any, vertex: Any) -> Any:
    """Set a row to 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _Rows(context, builder, signature.args[0], args[0]).store(args[1], _zeros())
        return context.get_dummy_value()

    return types.void(rows, types.uint64), generate
