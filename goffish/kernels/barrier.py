"""A barrier for threads that stay inside one nogil kernel from the first step to the last.

Meeting in Python costs tens of microseconds and the interpreter lock each time; a kernel that has thousands of short
steps needs less than one. Waiting threads yield the processor, so that a machine with other work on it goes on.

Every party has to run at the same time: start exactly `parties` threads of their own for the kernel, never tasks on
a shared pool.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from goffish.kernels.compile import kernel

_ARRIVED, _ROUND = 0, 8  # a cache line apart
_SPINS = 256


def make_barrier() -> NDArray[np.uint64]:
    """Storage for one barrier."""
    return np.zeros(16, np.uint64)


def _element(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    made = context.make_array(array_type)(context, builder, array)
    return cgutils.get_item_pointer(context, builder, array_type, made, [index], wraparound=False)


@intrinsic
def _atomic_add(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Add to ``array[index]`` (uint64) and give its former value."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _element(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("add", pointer, args[2], "seq_cst")

    return types.uint64(array, types.intp, types.uint64), generate


@intrinsic
def _atomic_load(typing_context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _element(context, builder, signature.args[0], args[0], args[1])
        return builder.load_atomic(pointer, "seq_cst", 8)

    return types.uint64(array, types.intp), generate


@intrinsic
def _atomic_store(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _element(context, builder, signature.args[0], args[0], args[1])
        builder.store_atomic(args[2], pointer, "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.uint64), generate


@intrinsic
def _yield_processor(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [])
        function = cgutils.get_or_insert_function(builder.module, kind, "sched_yield")
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of ``array[index]``, which will be read soon; any index is harmless."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _element(context, builder, signature.args[0], args[0], args[1])
        byte, number = ir.IntType(8), ir.IntType(32)
        address = builder.bitcast(pointer, byte.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@kernel(inner=True)
def wait(barrier: Any, parties: int) -> None:
    """Return once all `parties` threads have called; what each wrote before is seen by all after."""
    if parties == 1:
        return
    now = _atomic_load(barrier, _ROUND)
    if _atomic_add(barrier, _ARRIVED, np.uint64(1)) + np.uint64(1) == np.uint64(parties):
        _atomic_store(barrier, _ARRIVED, np.uint64(0))
        _atomic_add(barrier, _ROUND, np.uint64(1))
        return
    spins = 0
    while _atomic_load(barrier, _ROUND) == now:
        spins += 1
        if spins >= _SPINS:
            spins = 0
            _yield_processor()
