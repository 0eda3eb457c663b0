from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba.extending import intrinsic

F = TypeVar('F', bound=Callable[..., object])


def jit(function: F) -> F:
    """Compiles a numeric kernel once, keeps it on disk where some folder can
    be written to, and runs it without the interpreter's lock. The one place
    where numba's flags are set.
    """
    try:
        return cast(F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # No folder for the cache: compile in every process.
        return cast(F, numba.njit(nogil=True)(function))


def _multiply_high(typing_context: Any, a: Any, b: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        x, y = (builder.zext(arg, wide) for arg in args)
        high = builder.lshr(builder.mul(x, y), ir.Constant(wide, 64))
        return builder.trunc(high, ir.IntType(64))

    word = numba.types.uint64
    return word(word, word), codegen


#: The upper 64 bits of the 128-bit product of two 64-bit words; for kernels
#: only, since Python's integers need no such thing.
multiply_high = cast(Callable[[Any, Any], Any], intrinsic(_multiply_high))


def _prefetch(typing_context: Any, array: Any, row: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[0]
        view = context.make_array(kind)(context, builder, args[0])
        place = args[1]
        if kind.ndim == 2:
            place = builder.mul(place, builder.extract_value(view.shape, 1))
        first = builder.gep(view.data, [place])
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        ask = builder.module.declare_intrinsic(
            'llvm.prefetch', [byte],
            ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag]))
        # To read it; in all caches; it is data, not a program.
        builder.call(ask, [builder.bitcast(first, byte), flag(0), flag(3),
                           flag(1)])
        return context.get_dummy_value()

    return numba.types.void(array, numba.types.intp), codegen


#: Asks for the start of a row of a matrix, or for an entry of a vector, that
#: will be needed soon; for kernels only. It changes nothing but the time that
#: it takes to arrive.
prefetch = cast(Callable[[Any, Any], None], intrinsic(_prefetch))
