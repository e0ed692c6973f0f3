"""Eigenvector centrality, Katz centrality and HITS of a whole graph in one process."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.pagerank.kernels import apply
from goffish.algorithms.rows import Rows
from goffish.algorithms.spectral import kernels
from goffish.algorithms.weights import check_range
from goffish.errors import InputError, JobError
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.graph.parallel import run_tasks, thread_count

_Vector = NDArray[np.float64]

#: Steps after which the product with the matrix is computed anew, because rounding errors add up in it.
FRESH = 40
#: Part of the eigenvalue that is added to the diagonal for directed graphs, so that cycles of one length converge.
SHIFT = 0.3


@dataclass(frozen=True)
class Found:
    """An array with what is proved about it.

    Attributes
    ----------
    values : float64, shape (n,)
    iterations : int
        Passes over all arcs, or pairs of them for `hits_of`.
    error : float
        Relative residual; see the functions.
    scale : float
        The eigenvalue, or the factor `alpha`.
    """

    values: _Vector
    iterations: int
    error: float
    scale: float


_NOTHING = Found(np.empty(0), 0, 0.0, 0.0)


def eigenvector_of(
    graph: Graph, *, weighted: bool = False, tolerance: float = 1e-6, max_iterations: int = 1000,
    threads: int | None = None,
) -> Found:  # fmt: skip
    """A nonnegative vector of length 1 with ``‖Aᵀ x - λ x‖₂ ≤ tolerance · λ``.

    Raises
    ------
    JobError
        The bound is not reached after `max_iterations`.
    """
    product = Product(graph.reverse, weighted, threads)
    if not product.n:
        return _NOTHING
    if graph.directed:
        found = _power(product, tolerance, max_iterations, "eigenvector")
        # With a cycle, the eigenvalue is at least the mean weight of the cycle; without one, it is 0.
        weights = product.rows.matrix[2]
        least = float(weights.min(where=weights > 0.0, initial=product.largest_weight)) / product.largest_weight
        if 0.0 < found.scale < least / 2:
            raise no_cycles()
    else:
        found = _largest(product, product, tolerance, max_iterations, "eigenvector")
    return replace(found, scale=found.scale * product.largest_weight)


def hits_of(
    graph: Graph, *, weighted: bool = False, tolerance: float = 1e-6, max_iterations: int = 1000,
    threads: int | None = None,
) -> tuple[_Vector, Found]:  # fmt: skip
    """Hubs ``A a``, and authorities a of length 1 with ``‖Aᵀ A a - σ² a‖₂ ≤ tolerance · σ²``.

    Raises
    ------
    JobError
        As `eigenvector_of`.
    """
    forward, backward = Product(graph, weighted, threads), Product(graph.reverse, weighted, threads)
    between = np.empty(forward.n)
    if not forward.n:
        return between, _NOTHING

    def both(x: _Vector, out: _Vector) -> None:
        forward(x, between)
        backward(between, out)

    found = _largest(both, backward, tolerance, max_iterations, "hits")
    forward(found.values, between)
    scale = forward.largest_weight
    return between * scale, replace(found, scale=math.sqrt(found.scale) * scale)


def katz_of(
    graph: Graph, *, alpha: float | None = None, weighted: bool = False, tolerance: float = 1e-6,
    max_iterations: int = 1000, threads: int | None = None,
) -> Found:  # fmt: skip
    """The solution of ``x = alpha Aᵀ x + 1``, each entry with a relative error of at most `tolerance`.

    Notes
    -----
    Iterates ``x' = alpha Aᵀ x + 1``, whose residual in x is the change ``r = x' - x``. If ``|r| ≤ ρ < 1`` for a
    positive x, then ``x ≥ alpha Aᵀ x + 1 - ρ`` proves that ``I - alpha Aᵀ`` has a nonnegative inverse; the error of x
    is its product with r, at most ρ times its product with 1, which is the solution. The error of x' is smaller.

    Raises
    ------
    JobError
        The sums over walks diverge, or `tolerance` is not reached after `max_iterations`.
    """
    product = Product(graph.reverse, weighted, threads)
    n, scale = product.n, product.largest_weight
    if not n:
        return _NOTHING
    x, out = np.ones(n), np.empty(n)
    if alpha is None:
        product(x, out)
        alpha = 1.0 / (1.0 + scale * float(out.max(initial=0.0)))
    error, passes = math.inf, 0
    while error > tolerance and passes < max_iterations and not 1e200 < error < math.inf:
        product(x, out, alpha * scale)
        changes = run_tasks(partial(kernels.add_constant, out, 1.0, x), product.ranges, product.rows.threads)
        error = float(np.max(changes))
        x, out, passes = out, x, passes + 1
    if not error <= tolerance:
        raise not_summed(passes, alpha)
    return Found(x, passes, error, alpha)


class Product:
    """Products of the rows of a graph with vectors, divided by the largest weight: they neither overflow nor vanish."""

    def __init__(self, pull: Graph, weighted: bool, threads: int | None) -> None:
        if weighted and pull.weights is None:
            raise InputError("weighted=True: the graph has no weights")
        self.n, self.largest_weight = pull.num_vertices, 1.0
        if weighted:
            check_range(pull.weights)
            assert pull.weights is not None
            self.largest_weight = float(pull.weights.max(initial=0.0)) or 1.0
        self.rows = Rows(pull, weighted, thread_count(threads))
        self.ranges, self._nothing = self.rows.ranges(), np.zeros(self.n)

    def __call__(self, x: _Vector, out: _Vector, factor: float = 1.0) -> None:
        self.total(apply, *self.rows.matrix, x, self._nothing, -factor / self.largest_weight, out)

    def total(self, kernel: Callable[..., Any], *arguments: Any) -> Any:
        return self.rows.total(kernel, *arguments, ranges=self.ranges)


class _Iteration:
    """A vector x that approaches an eigenvector: its image, and the residual ``w = image - value x``."""

    def __init__(self, multiply: Callable[..., None], product: Product, tolerance: float, most: int, name: str) -> None:
        n = product.n
        self.multiply, self.total = multiply, product.total
        self.tolerance, self.most, self.name = tolerance, most, name
        self.x, self.image, self.w = np.full(n, 1.0 / math.sqrt(n)), np.empty(n), np.empty(n)
        self.p, self.moved = np.zeros(n), np.zeros(n)
        self.passes, self.value, self.error = 0, 0.0, math.inf
        #: Products of x and the step p with themselves, each other and the matrix, as of `kernels.advance`.
        self.sums: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self.restart()

    def restart(self) -> None:
        """Begin anew at the absolute values of x, which are no farther from the largest eigenvalue."""
        np.abs(self.x, out=self.x)
        self.x /= math.sqrt(self.sums[0])
        self.p[:] = self.moved[:] = 0.0
        self.sums = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self.renew()

    def renew(self) -> None:
        """Compute the image of x."""
        self.multiply(self.x, self.image)
        self.passes += 1
        xx, xp, _ = map(float, self.total(kernels.products, self.x, self.p, self.x, self.x))
        xax, xap, _ = map(float, self.total(kernels.products, self.x, self.p, self.x, self.image))
        self.sums = (xx, xp, self.sums[2], xax, xap, self.sums[5])

    def measure(self) -> tuple[float, float, float]:
        """Compute residual and error; products of the residual with itself, x and the step."""
        xx, xax = self.sums[0], self.sums[3]
        self.value = xax / xx
        found = self.total(kernels.residual, self.x, self.image, self.p, self.value, self.w)
        ww, xw, pw = map(float, found)
        size = math.sqrt(ww / xx)
        self.error = size / self.value if self.value > 0.0 else (math.inf if size else 0.0)
        if self.error > self.tolerance and self.passes >= self.most:
            raise not_converged(self.name, self.passes, self.error, self.tolerance)
        return ww, xw, pw

    def step(self, along: float, ahead: float, back: float, image: _Vector) -> None:
        """Replace x; `image` is that of the residual."""
        vectors, images = (self.x, self.p, self.w), (self.image, self.moved, image)
        self.sums = tuple(map(float, self.total(kernels.advance, vectors, images, along, ahead, back)))

    def found(self) -> Found:
        return Found(self.x, self.passes, self.error, self.value)


def _power(product: Product, tolerance: float, most: int, name: str) -> Found:
    """Power iteration, for any nonnegative matrix."""
    at = _Iteration(product, product, tolerance, most, name)
    while True:
        at.measure()
        if at.error <= tolerance:
            return at.found()
        size = math.sqrt(at.sums[0])
        # The largest entry of a row in scaled weights is 1: where x has no image yet, any step is as good.
        gain = (1.0 + SHIFT) * at.value if at.value > 0.0 else 1.0
        at.step(1.0 / size, 1.0 / (size * gain), 0.0, at.w)
        at.restart()


def _largest(multiply: Callable[..., None], product: Product, tolerance: float, most: int, name: str) -> Found:
    """Locally optimal conjugate gradients, for a symmetric nonnegative matrix.

    Each step goes to the best vector in the span of x, its residual and the last step (A. Knyazev, SIAM J. Sci. Comput.
    23(2), 2001, with blocks of one vector and without preconditioning).
    """
    at = _Iteration(multiply, product, tolerance, most, name)
    image, fresh = np.empty(product.n), True
    while True:
        ww, xw, pw = at.measure()
        if at.error <= tolerance:
            if fresh:
                return at.found()
            at.restart()
            fresh = True
            continue
        multiply(at.w, image)
        at.passes += 1
        xaw, paw, waw = map(float, product.total(kernels.products, at.x, at.p, at.w, image))
        xx, xp, pp, xax, xap, pap = at.sums
        gram = np.array([[xx, xw, xp], [xw, ww, pw], [xp, pw, pp]])
        form = np.array([[xax, xaw, xap], [xaw, waw, paw], [xap, paw, pap]])
        along, ahead, back = best_step(gram, form).tolist()
        at.step(along, ahead, back, image)
        fresh = False
        if at.passes % FRESH == 0:
            at.renew()


def best_step(gram: _Vector, form: _Vector) -> _Vector:
    """Coefficients of the vector with the largest Rayleigh quotient, in terms of x, the residual and the last step.

    Parameters
    ----------
    gram, form : float64, shape (3, 3)
        Products of the vectors with each other, and with their images. The last step may be 0.
    """
    size = 3 if gram[2, 2] > 0.0 else 2
    scale = 1.0 / np.sqrt(gram.diagonal()[:size])
    gram, form = (matrix[:size, :size] * np.outer(scale, scale) for matrix in (gram, form))
    lower = np.linalg.inv(np.linalg.cholesky(gram + 1e-15 * np.eye(size)))
    found: _Vector = np.zeros(3)
    found[:size] = (lower.T @ np.linalg.eigh(lower @ form @ lower.T)[1][:, -1]) * scale
    return found if found[0] > 0.0 else -found


def not_converged(name: str, passes: int, error: float, tolerance: float) -> JobError:
    return JobError(
        f"{name}: no convergence after {passes} iterations: relative residual {error:.2g}, tolerance {tolerance:g}; "
        "increase max_iterations or tolerance"
    )


def not_summed(passes: int, alpha: float) -> JobError:
    return JobError(
        f"katz: no convergence after {passes} iterations with alpha={alpha:g}: decrease alpha, which must be less than "
        "one over the largest eigenvalue, or increase max_iterations"
    )


def no_cycles() -> JobError:
    return JobError("eigenvector: the directed graph has no cycles, so that no eigenvalue is positive")


def _result(graph: Graph, name: str, columns: dict[str, _Vector], summary: dict[str, Any]) -> Result:
    return Result(name, pa.table({"vertex": graph.label_column(), **columns}), summary)


def eigenvector(graph: Graph, **options: Any) -> Result:
    """The result of `goffish.eigenvector`."""
    found = eigenvector_of(graph, **options)
    summary = {"iterations": found.iterations, "residual": found.error, "eigenvalue": found.scale}
    return _result(graph, "eigenvector", {"eigenvector": found.values}, summary)


def katz(graph: Graph, **options: Any) -> Result:
    """The result of `goffish.katz`."""
    found = katz_of(graph, **options)
    summary = {"iterations": found.iterations, "error_bound": found.error, "alpha": found.scale}
    return _result(graph, "katz", {"katz": found.values}, summary)


def hits(graph: Graph, **options: Any) -> Result:
    """The result of `goffish.hits`."""
    hubs, found = hits_of(graph, **options)
    columns = {
        name: values / (float(values.sum()) or 1.0) for name, values in (("hub", hubs), ("authority", found.values))
    }
    summary = {"iterations": found.iterations, "residual": found.error, "singular_value": found.scale}
    return _result(graph, "hits", columns, summary)
