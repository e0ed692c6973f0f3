"""Kernels that only kernels call: compiled as far as their callers need, which is not to machine code."""

from __future__ import annotations

from typing import Any

from llvmlite.binding import parse_bitcode
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, CompileResult, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.typed_passes import AnnotateTypes


class _NoEnvironment:
    """In place of the code generator that would write where the machine code finds its environment."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        """Do nothing."""


class InnerLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The code of a kernel that becomes part of its callers.

    Machine code is made of theirs, with this in it.
    """

    codegen = _NoEnvironment()

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def serialize_using_object_code(self) -> tuple[str, bytes]:
        """Return what `rebuilt` makes a library of."""
        return self.name, self._get_module_for_linking().as_bitcode()


@register_pass(mutates_CFG=False, analysis_only=True)
class _MakeLibrary(AnalysisPass):  # type: ignore[misc]
    _name = "library of an inner kernel"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.library = InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


class InnerCompiler(CompilerBase):  # type: ignore[misc]
    """Compiler of kernels that only kernels call."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes of numba, and one before the code is made."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_MakeLibrary, AnnotateTypes)
        passes.finalize()
        return [passes]


def set_environments(result: CompileResult) -> None:
    """Set where the machine code of a kernel finds the environments of the kernels in it, as numba does from disk."""
    if not isinstance(result.library, InnerLibrary):
        for environment in result._find_referenced_environments():
            result.codegen.set_env(environment.env_name, environment)


def rebuilt(target_context: Any, payload: tuple[Any, ...]) -> CompileResult:
    """Return a compiled kernel that was kept on disk."""
    (name, code), function, environment, signature, _, lifted, annotation, _, environments = payload
    library = InnerLibrary(target_context.codegen(), name)
    library._final_module = parse_bitcode(code)
    library._finalize_final_module()
    return CompileResult(
        target_context=target_context, typing_context=target_context.typing_context, library=library,
        environment=environment, entry_point=target_context.get_executable(library, function, environment),
        fndesc=function, type_annotation=annotation, signature=signature, objectmode=False, lifted=lifted,
        typing_error=None, call_helper=None, metadata=None, reload_init=(), referenced_envs=environments,
    )  # fmt: skip
