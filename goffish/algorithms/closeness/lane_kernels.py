"""Rows of `LANES` bits as one machine vector: the step of many searches at once that touches the arcs.

A batch runs one breadth-first search per lane; the lanes that have reached a vertex are one cache line. A vertex gets
the lanes of its neighbors, so an arc costs one vector "or" for the whole batch. LLVM splits the vectors on
processors with shorter registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: Words of 64 bits in a row: one cache line.
WORDS = 8
#: Searches in a batch.
LANES = 64 * WORDS
#: Rows are padded to multiples of so many arcs: how many arcs a vertex has cannot be predicted.
STRIDE = 4
#: Set in what `learn` gives where a vertex is known to all lanes of the batch from now on.
COMPLETE = 1 << 32

_WORD = ir.IntType(64)
_ROW = ir.VectorType(_WORD, WORDS)
_FLAGS = ir.IntType(WORDS)
_ALIGN = 64


def _place(context: Any, builder: Any, kind: Any, value: Any, row: Any) -> Any:
    data = context.make_array(kind)(context, builder, value).data
    start = builder.gep(data, [builder.mul(row, _WORD(WORDS))])
    return builder.bitcast(start, _ROW.as_pointer())


def _any(builder: Any, flags: Any) -> Any:
    return builder.icmp_unsigned("!=", builder.bitcast(flags, _FLAGS), _FLAGS(0))


@intrinsic
def learn(
    typing_context: Any, targets: Any, first: Any, last: Any, known: Any, lanes: Any, vertex: Any, fresh: Any, at: Any
) -> Any:
    """Give `vertex` the lanes that have reached its neighbors.

    Parameters
    ----------
    targets, first, last
        The neighbors ``targets[first:last]`` (unsigned), a multiple of `STRIDE` of them. They are asked only until the
        vertex has been reached by all lanes.
    known : uint64 rows
        Lanes that have reached each vertex.
    lanes : uint64 row
        All lanes of the batch.
    vertex : uint64
    fresh : uint64 rows
    at : uint64
        Row of `fresh` that receives the lanes that reach `vertex` now.

    Returns
    -------
    int64
        How many of them are new, plus `COMPLETE` if none is left to come.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        data = context.make_array(kinds[0])(context, builder, args[0]).data
        everything = builder.load(_place(context, builder, kinds[4], args[4], _WORD(0)), align=_ALIGN)
        before = builder.load(_place(context, builder, kinds[3], args[3], args[5]), align=_ALIGN)

        start = builder.block
        loop, done = builder.append_basic_block("neighbours"), builder.append_basic_block("asked")
        builder.cbranch(builder.icmp_unsigned("<", args[1], args[2]), loop, done)
        builder.position_at_end(loop)
        arc, total = builder.phi(_WORD), builder.phi(_ROW)
        terms = [total]
        for k in range(STRIDE):
            target = builder.load(builder.gep(data, [builder.add(arc, _WORD(k))]))
            target = target if target.type == _WORD else builder.zext(target, _WORD)
            terms.append(builder.load(_place(context, builder, kinds[3], args[3], target), align=_ALIGN))
        while len(terms) > 1:  # pairwise: short chains
            pairs = zip(terms[::2], terms[1::2], strict=False)
            terms = [builder.or_(left, right) for left, right in pairs] + terms[len(terms) & ~1 :]
        following = builder.add(arc, _WORD(STRIDE))
        lacking = _any(builder, builder.icmp_unsigned("!=", terms[0], everything))
        more = builder.and_(lacking, builder.icmp_unsigned("<", following, args[2]))
        builder.cbranch(more, loop, done)
        arc.add_incoming(args[1], start)
        arc.add_incoming(following, loop)
        total.add_incoming(before, start)
        total.add_incoming(terms[0], loop)
        builder.position_at_end(done)
        after = builder.phi(_ROW)
        after.add_incoming(before, start)
        after.add_incoming(terms[0], loop)

        builder.store(after, _place(context, builder, kinds[6], args[6], args[7]), align=_ALIGN)
        count = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_ROW, [_ROW]), f"llvm.ctpop.v{WORDS}i64")
        add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_WORD, [_ROW]), f"llvm.vector.reduce.add.v{WORDS}i64"
        )
        new = builder.call(add, [builder.call(count, [builder.xor(after, before)])])
        left = _any(builder, builder.icmp_unsigned("!=", after, everything))
        return builder.add(new, builder.select(left, _WORD(0), _WORD(COMPLETE)))

    row = types.Array(types.uint64, 1, "C")
    return types.int64(targets, types.uint64, types.uint64, row, row, types.uint64, row, types.uint64), generate


@intrinsic
def copy_row(typing_context: Any, rows: Any, vertex: Any, fresh: Any, at: Any) -> Any:
    """Row `vertex` of `rows` becomes row `at` of `fresh`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        value = builder.load(_place(context, builder, kinds[2], args[2], args[3]), align=_ALIGN)
        builder.store(value, _place(context, builder, kinds[0], args[0], args[1]), align=_ALIGN)
        return context.get_dummy_value()

    return types.void(rows, types.uint64, fresh, types.uint64), generate
