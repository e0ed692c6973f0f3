"""Eigenvector centrality, HITS and Katz centrality against the engine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.pagerank.step_kernels import add_received
from goffish.algorithms.spectral import kernels, step_kernels
from goffish.algorithms.spectral.in_memory import FRESH, SHIFT, best_step, no_cycles, not_converged, not_summed
from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.gopher import BatchStep, SubgraphBatch, SubgraphProgram, per_partition, per_vertex
from goffish.kernels.csr import NO_WEIGHTS

_Vector = NDArray[np.float64]


class _Products(SubgraphProgram):
    """Products of the matrix of a graph with vectors: a superstep sends, and the next one adds up what it receives."""

    message = {"value": np.float64}
    combine = "sum"
    state = {"x": per_vertex(np.float64, 1.0), "near": per_vertex(np.float64)}

    weighted: bool

    def init(self, sg: SubgraphBatch) -> None:
        if self.weighted and sg.weights is None:
            raise InputError("weighted=True: the graph has no weights")
        if self.weighted:
            check_range(sg.weights)

    def _send(self, batch: SubgraphBatch, step: BatchStep, x: _Vector, scale: float = 1.0, back: bool = False) -> None:
        """Send x along arcs, or against them, multiplied by their weights over `scale`."""
        back = back and batch.directed
        rows, weights = (batch.in_rows, batch.in_weights) if back else (batch.rows, batch.weights)
        vertex, subgraph = batch.remotes(incoming=back)
        batch["near"], remote = 0.0, np.zeros(vertex.size)
        used = weights if self.weighted and weights is not None else NO_WEIGHTS
        step_kernels.push(rows, used, scale, x, batch["near"], remote)
        step.send_to_vertex(subgraph, vertex, value=remote)

    @staticmethod
    def _received(batch: SubgraphBatch, step: BatchStep) -> _Vector:
        """The product with what was sent in the superstep before."""
        found: _Vector = batch["near"]
        messages = step.messages
        add_received(np.ascontiguousarray(messages["vertex"]), np.ascontiguousarray(messages["value"]), found)
        return found


class KatzSums(_Products):
    """Katz centrality: the passes of `goffish.algorithms.spectral.in_memory.katz_of`, one a superstep.

    Parameters
    ----------
    alpha : float, optional
    weighted : bool
    tolerance : float
    max_iterations : int
        As in `goffish.katz`.
    """

    state = {**_Products.state, "alpha": per_partition(np.float64)}
    aggregators = {"largest": "max", "change": "max", "alpha": "max", "iterations": "max"}

    def __init__(self, alpha: float | None, weighted: bool, tolerance: float, max_iterations: int) -> None:
        self.alpha, self.weighted, self.tolerance, self.max_iterations = alpha, weighted, tolerance, max_iterations

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        if step.number == 1:
            self._send(batch, step, batch["x"])
            return
        change = step.aggregated("change")
        if change is not None and change <= self.tolerance:
            step.vote_to_halt()
            return
        passes = step.number - (3 if self.alpha is None else 2)
        if passes < 0:
            self._received(batch, step)
            step.aggregate("largest", float(batch["near"].max(initial=0.0)))
            return
        if passes == 0:
            batch["alpha"] = [self.alpha if self.alpha is not None else 1.0 / (1.0 + step.aggregated("largest"))]
        alpha = float(batch["alpha"][0])
        # Not `change > 1e200`: NaN fails as well.
        if change is not None and (passes >= self.max_iterations or not change <= 1e200):
            raise not_summed(passes, alpha)
        # The sums of the first pass were received before alpha was computed.
        found = batch["near"] if passes == 0 and self.alpha is None else self._received(batch, step)
        found *= alpha
        step.aggregate("change", kernels.add_constant(found, 1.0, batch["x"], 0, found.size))
        step.aggregate("iterations", passes + 1)
        step.aggregate("alpha", alpha)
        batch["x"] = found
        self._send(batch, step, batch["x"])

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"katz": sg["x"]}


#: What a superstep of `PrincipalVector` does.
_START, _IMAGE, _RESIDUAL, _PRODUCTS, _STEP, _HUBS, _SCALED = range(7)
_SUMS = ("xx", "xp", "xw", "pp", "pw", "ww", "xax", "xap", "xaw", "pap", "paw", "waw")


class _Progress(NamedTuple):
    """What all partitions have computed alike.

    Attributes
    ----------
    phase, halfway
        What comes next; of a product with two matrices, whether the second is due.
    passes
        Products so far.
    value, size
        Of the last residual: the value that belongs to x, and x·x.
    fresh
        Whether the image of x is a product, and not a sum of images.
    scale, least
        Largest weight, and the least positive one divided by it.
    """

    phase: float = _START
    halfway: float = 0.0
    passes: float = 0.0
    value: float = 0.0
    size: float = 1.0
    fresh: float = 1.0
    scale: float = 1.0
    least: float = 1.0


class PrincipalVector(_Products):
    """Eigenvector centrality or HITS: the iteration of `goffish.algorithms.spectral.in_memory`.

    A pass takes two supersteps in undirected graphs and for eigenvectors, three for HITS: products of vectors with each
    other are aggregated in one superstep and used in the next.

    Parameters
    ----------
    hits : bool
    weighted : bool
    tolerance : float
    max_iterations : int
        As in `goffish.eigenvector` and `goffish.hits`.
    """

    state = {
        **_Products.state,
        "image": per_vertex(np.float64),
        "w": per_vertex(np.float64),
        "p": per_vertex(np.float64),
        "moved": per_vertex(np.float64),
        "hub": per_vertex(np.float64),
        "progress": per_partition(np.float64),
    }
    aggregators = {
        **dict.fromkeys(_SUMS, "sum"),
        "residual": "sum", "hubs": "sum", "authorities": "sum", "largest": "max", "least": "min",
        "iterations": "max", "error": "max", "value": "max",
    }  # fmt: skip

    def __init__(self, hits: bool, weighted: bool, tolerance: float, max_iterations: int) -> None:
        self.hits, self.weighted, self.tolerance, self.max_iterations = hits, weighted, tolerance, max_iterations

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        at = _Progress(*batch["progress"]) if batch["progress"].size else _Progress()
        batch["progress"] = self._advanced(batch, step, at)

    def _advanced(self, batch: SubgraphBatch, step: BatchStep, at: _Progress) -> _Progress:
        if at.phase == _START:
            return self._start(batch, step, at)
        if step.aggregated("residual") is not None:
            error = self._error(step, at)
            if error <= self.tolerance:
                return self._converged(batch, step, at, error)
        if at.halfway:
            self._send(batch, step, self._received(batch, step).copy(), at.scale)
            return at._replace(halfway=0.0)
        if at.phase == _IMAGE:
            batch["image"] = self._received(batch, step)
            for name, of in (("xx", "x"), ("xax", "image")):
                found = kernels.products(batch["x"], batch["p"], batch["w"], batch[of], 0, batch.num_vertices)
                step.aggregate(name, found[0])
            return at._replace(phase=_RESIDUAL, passes=at.passes + 1)
        if at.phase == _RESIDUAL:
            xx, xax = (float(step.aggregated(name)) for name in ("xx", "xax"))
            return self._residual(batch, step, at, xax / xx, xx)
        if at.phase == _PRODUCTS:
            self._multiply_vectors(batch, step, self._received(batch, step))
            return at._replace(phase=_STEP, passes=at.passes + 1)
        if at.phase == _STEP:
            return self._step(batch, step, at)
        return self._hubs(batch, step, at)

    def _start(self, batch: SubgraphBatch, step: BatchStep, at: _Progress) -> _Progress:
        if self.weighted and step.number == 1:
            assert batch.weights is not None
            step.aggregate("largest", batch.weights.max(initial=0.0))
            step.aggregate("least", batch.weights.min(where=batch.weights > 0.0, initial=np.inf))
            return at
        if self.weighted:
            scale = float(step.aggregated("largest")) or 1.0
            at = at._replace(scale=scale, least=min(float(step.aggregated("least")) / scale, 1.0))
        batch["x"] = 1.0 / math.sqrt(step.graph.num_vertices)
        return self._multiply(batch, step, at, "x", _IMAGE)

    def _multiply(self, batch: SubgraphBatch, step: BatchStep, at: _Progress, name: str, then: int) -> _Progress:
        self._send(batch, step, batch[name], at.scale, back=self.hits)
        return at._replace(phase=then, halfway=float(self.hits))

    def _residual(self, batch: SubgraphBatch, step: BatchStep, at: _Progress, value: float, xx: float) -> _Progress:
        at = at._replace(value=value, size=xx)
        x, w, n = batch["x"], batch["w"], batch.num_vertices
        step.aggregate("residual", kernels.residual(x, batch["image"], batch["p"], value, w, 0, n)[0])
        if self.hits or not batch.directed:
            return self._multiply(batch, step, at, "w", _PRODUCTS)
        # The step of a power iteration needs no more sums; x is the result if the residual is small enough.
        size, gain = math.sqrt(xx), (1.0 + SHIFT) * value if value > 0.0 else 1.0
        batch["p"] = x / size
        batch["x"] = np.abs(x + w / gain) / size
        return self._multiply(batch, step, at, "x", _IMAGE)

    def _error(self, step: BatchStep, at: _Progress) -> float:
        size = math.sqrt(step.aggregated("residual") / at.size)
        error = size / at.value if at.value > 0.0 else (math.inf if size else 0.0)
        if error > self.tolerance and at.passes >= self.max_iterations:
            raise not_converged("hits" if self.hits else "eigenvector", int(at.passes), error, self.tolerance)
        return error

    def _converged(self, batch: SubgraphBatch, step: BatchStep, at: _Progress, error: float) -> _Progress:
        power = batch.directed and not self.hits
        if not power and not at.fresh:
            batch["x"] = np.abs(batch["x"]) / math.sqrt(at.size)
            batch["p"] = batch["moved"] = 0.0
            return self._multiply(batch, step, at._replace(fresh=1.0), "x", _IMAGE)
        if power and 0.0 < at.value < at.least / 2.0:
            raise no_cycles()
        batch["x"] = batch["p"] if power else batch["x"] / math.sqrt(at.size)
        step.aggregate("iterations", int(at.passes))
        step.aggregate("error", error)
        step.aggregate("value", math.sqrt(at.value) * at.scale if self.hits else at.value * at.scale)
        if not self.hits:
            step.vote_to_halt()
            return at
        return self._multiply(batch, step, at, "x", _HUBS)._replace(halfway=0.0)

    def _hubs(self, batch: SubgraphBatch, step: BatchStep, at: _Progress) -> _Progress:
        if at.phase == _HUBS:
            batch["hub"] = self._received(batch, step)
            step.aggregate("hubs", batch["hub"].sum())
            step.aggregate("authorities", batch["x"].sum())
            return at._replace(phase=_SCALED)
        batch["hub"] /= step.aggregated("hubs") or 1.0
        batch["x"] /= step.aggregated("authorities") or 1.0
        step.vote_to_halt()
        return at

    @staticmethod
    def _multiply_vectors(batch: SubgraphBatch, step: BatchStep, image: _Vector) -> None:
        vectors = batch["x"], batch["p"], batch["w"]
        n = batch.num_vertices
        found = [kernels.products(*vectors, of, 0, n) for of in (*vectors, batch["image"], batch["moved"], image)]
        (xx, xp, xw), (_, pp, pw), (_, _, ww), (xax, _, _), (xap, pap, _), (xaw, paw, waw) = found
        sums = (xx, xp, xw, pp, pw, ww, xax, xap, xaw, pap, paw, waw)
        for name, value in zip(_SUMS, sums, strict=True):
            step.aggregate(name, value)

    def _step(self, batch: SubgraphBatch, step: BatchStep, at: _Progress) -> _Progress:
        xx, xp, xw, pp, pw, ww, xax, xap, xaw, pap, paw, waw = (float(step.aggregated(name)) for name in _SUMS)
        gram = np.array([[xx, xw, xp], [xw, ww, pw], [xp, pw, pp]])
        form = np.array([[xax, xaw, xap], [xaw, waw, paw], [xap, paw, pap]])
        along = best_step(gram, form)
        vectors, images = (batch["x"], batch["p"], batch["w"]), (batch["image"], batch["moved"], batch["near"])
        kernels.advance(vectors, images, *along.tolist(), 0, batch.num_vertices)
        at = at._replace(fresh=0.0)
        if at.passes % FRESH == 0:
            return self._multiply(batch, step, at, "x", _IMAGE)
        size = float(along @ gram @ along)
        return self._residual(batch, step, at, float(along @ form @ along) / size, size)

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"hub": sg["hub"], "authority": sg["x"]} if self.hits else {"eigenvector": sg["x"]}
