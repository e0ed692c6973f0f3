"""PageRank of a live graph on several workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.streaming.graphs.programs import rank_kernels as kernels
from goffish.streaming.graphs.programs.part import Change
from goffish.streaming.graphs.programs.program import Array, Column, Context, LiveProgram, Numbers
from goffish.streaming.key_table import longer

#: Bits of the masses of all vertices together: sums of residuals stay below 2^63.
_BITS = 58
#: Bits of the number of vertices for which masses are made at first, and more of them once there are more vertices.
_FIRST_BITS, _MORE_BITS = 12, 4
#: Of the residuals that the tolerance allows, what pushes begin above, and what they leave.
_MOST, _GOAL = 0.9, 0.5
#: Of what is allowed, residuals that are never pushed; of the mean residual for each arc, what is pushed.
_IDLE, _SHARE = 0.1, 0.25
#: Where listed vertices have more than this share of the arcs, pushes go everywhere; all scores are changed at once
#: if the sum of residuals is more than such a share of that without signs.
_MANY, _UNBALANCED = 0.25, 0.3
#: Of the division of ranks, which are floating-point numbers only then.
_ROUNDING = 2.0**-50


class Figures(NamedTuple):
    """Figures of all parts together; see `rank_kernels`."""

    vertices: int
    dangling: int
    volume: int
    mass: int
    scores: int
    total: int
    norm: int
    listed_norm: int
    listed_volume: int


class Ranks(NamedTuple):
    """Scores in integers, and what they lack; see `rank_kernels`."""

    degrees: Numbers
    scores: Numbers
    #: Those of other parts: what is to be sent.
    residuals: Numbers
    masses: Numbers
    is_listed: NDArray[np.bool_]
    # Within a superstep.
    chosen: Numbers
    carried: Numbers
    outside: Numbers
    owned: NDArray[np.bool_]
    listed: Numbers
    used: Numbers
    figures: Numbers


_STATE = {
    "degrees": Column(np.int64, -1), "scores": Column(np.int64), "residuals": Column(np.int64),
    "masses": Column(np.int64), "is_listed": Column(np.bool_), "chosen": Column(np.int64), "carried": Column(np.int64),
    "outside": Column(np.int64),
}  # fmt: skip


class PageRank(LiveProgram):
    """PageRank and personalized PageRank, to a proved error, which is the value of an epoch.

    Residuals are pushed along arcs until their sum proves the error. They are integers, and those that are pushed in a
    superstep depend on sums over all workers only: the ranks have the same bits for all numbers of workers.

    Parameters
    ----------
    damping : float
        Probability of following an arc, in [0, 1).
    tolerance : float
        Upper bound of the L1 distance to the exact ranks.
    dangling : {"redistribute", "leak"}
        Whether the rank of vertices without out-arcs returns through the teleport, or is lost.
    personalization : mapping from label to weight, optional
        Where to teleport. Vertices that do not exist count once they do. Default: all vertices alike.
    directed : bool

    Raises
    ------
    InputError
        An option out of range.

    Notes
    -----
    The true residuals ``r'`` differ from those in integers by less than two units for each vertex and arc, and the
    ranks after a last step from the exact ones by at most ``(d Σ|r| + Σ|r' - r|) / (1 - d)``.

    References
    ----------
    Ohsaka, N., Maehara, T., Kawarabayashi, K.: Efficient PageRank tracking in evolving networks. KDD 2015.
    """

    movable = True
    common = ("_size", "_idle", "_everywhere", "_total")
    totals = ("_figures",)
    state = _STATE

    def __init__(
        self, *, damping: float = 0.85, tolerance: float = 1e-6, dangling: str = "redistribute",
        personalization: Mapping[Any, float] | None = None, directed: bool = True,
    ) -> None:  # fmt: skip
        # Worker processes, which take the program as it is then, start faster without these.
        from goffish.algorithms.pagerank.api import PageRanks
        from goffish.streaming.graphs.ranks import shares_of

        options = PageRanks.checked(
            damping=damping, tolerance=tolerance, dangling=dangling, personalization=personalization
        )  # fmt: skip
        self.directed = directed
        self._damping, self._leaks = float(options.damping), dangling == "leak"
        self._tolerance = min(float(options.tolerance), 2.0)  # no two distributions are farther apart
        self._units = np.uint64(int(self._damping * 2**64))
        # A residual for each arc, from which a push makes the sum smaller though what is passed on is rounded.
        self._least = 2.0 / (1.0 - self._damping) + 1.0
        self._personal: Numbers | None = None
        if options.personalization is not None:
            labels, shares = shares_of(options.personalization)
            self.named = {"personalization": labels}
            self._personal = np.rint(np.ldexp(shares, _BITS)).astype(np.int64)

    def start(self, ctx: Context) -> None:
        """Begin on a worker."""
        self._size = _FIRST_BITS
        self._idle = self._least
        self._pushes = self._everywhere = False
        self._listed = np.zeros(0, np.int64)
        self._used, self._figures = np.zeros(2, np.int64), np.zeros(len(Figures._fields), np.int64)
        self._total = Figures._make([0] * len(Figures._fields))

    def _ranks(self, ctx: Context) -> Ranks:
        state = ctx.state
        return Ranks(
            owned=ctx.owned, listed=self._listed, used=self._used, figures=self._figures,
            **{name: state[name] for name in _STATE},
        )  # fmt: skip

    def _fit(self, ctx: Context) -> None:
        size = len(ctx.state["degrees"])
        if size > len(self._listed):
            self._listed = longer(self._listed, int(self._used[kernels.LISTED]), size)

    def moved(self, ctx: Context, came: Numbers, went: Numbers) -> None:
        """List vertices where they are. All figures are used as sums over all workers only, and stay as they are."""
        ctx.reset(went)
        self._fit(ctx)
        used = int(self._used[kernels.LISTED])
        kept = self._listed[:used][ctx.owned[self._listed[:used]]]
        found = np.concatenate((kept, came[ctx.state["is_listed"][came]]))
        self._listed[: len(found)], self._used[kernels.LISTED] = found, len(found)

    def changes(self, ctx: Context, change: Change) -> None:
        """Take the changes of an epoch."""
        self._fit(ctx)
        ctx.state["masses"][change.new] = self._masses(ctx, change.new)
        ranks = self._ranks(ctx)
        ends = [change.lost_sources, change.sources]
        for sign, one, other in (
            (-1, change.lost_sources, change.lost_targets), (1, change.sources, change.targets)
        ):  # fmt: skip
            kernels.change_arcs(ranks, one, other, sign, self._units)
            if not self.directed:
                kernels.change_arcs(ranks, other, one, sign, self._units)
                ends.append(other)
        vertices = np.unique(np.concatenate((change.new, change.gone, *ends)))
        vertices = vertices[ctx.owned[vertices]]
        kernels.change_vertices(ranks, ctx.net.out, vertices, ctx.part.present, self._units)
        self._pushes, self._balanced = False, np.inf
        self._send(ctx, ranks)
        ctx.share(self._figures)  # all workers take part in the next superstep

    def _masses(self, ctx: Context, vertices: Numbers) -> Numbers:
        if self._personal is None:
            return np.full(len(vertices), 1 << _BITS - self._size)
        named = ctx.named["personalization"]
        order = np.argsort(named)
        at = order[np.minimum(np.searchsorted(named, ctx.numbers[vertices], sorter=order), len(order) - 1)]
        return np.where(named[at] == ctx.numbers[vertices], self._personal[at], 0)

    def _send(self, ctx: Context, ranks: Ranks) -> None:
        outside = ranks.outside[: self._used[kernels.OUTSIDE]].copy()
        ctx.send(outside, ranks.residuals[outside])
        ranks.residuals[outside], ranks.is_listed[outside] = 0, False
        self._used[kernels.OUTSIDE] = 0

    def messages(self, ctx: Context, targets: Numbers, values: Array) -> None:
        """Take residuals, and push them until their sum over all workers, one superstep before, is small enough."""
        ranks = self._ranks(ctx)
        kernels.receive(ranks, targets, values)
        if ctx.superstep == 1:  # what others have sent was not in their figures
            self._share(ctx, ranks)
            return
        self._total = Figures._make(ctx.shared.reshape(-1, len(Figures._fields)).sum(axis=0).tolist())
        allowed = self._allowed()
        if self._personal is None and self._total.vertices > 1 << self._size:
            while self._total.vertices > 1 << self._size:
                self._size += _MORE_BITS
            kernels.begin_anew(ranks, 1 << _BITS - self._size, self._units)
            self._pushes = self._everywhere = True
            self._share(ctx, ranks)
        elif self._total.norm > (_GOAL if self._pushes else _MOST) * allowed:
            self._push(ctx, ranks, allowed)
        elif self._pushes:
            self._pushes = False
            self._share(ctx, ranks)

    def _push(self, ctx: Context, ranks: Ranks, allowed: float) -> None:
        """Push residuals, by the figures of all workers of the superstep before."""
        figures = self._total
        self._idle = max(_IDLE * allowed / figures.volume, self._least)
        self._everywhere |= figures.norm - figures.listed_norm > _GOAL / 2 * allowed
        self._pushes = True
        shared = self._share(ctx, ranks)
        self._everywhere = figures.listed_volume > _MANY * figures.volume
        factor = self._factor()
        if factor:
            self._balanced = figures.norm
            count = kernels.balance(ranks, factor, self._units)
        else:
            mean = figures.listed_norm / max(figures.listed_volume, 1)
            count = kernels.choose(ranks, max(_SHARE * mean, self._idle), self._units)
        kernels.pass_on(ranks, ctx.net.out, count, self._everywhere)
        self._send(ctx, ranks)
        # Sums are known before what they are of has arrived.
        for at in (kernels.SCORES, kernels.TOTAL):
            shared[at] = self._figures[at]

    def _factor(self) -> float:
        """Return by how much all scores are made larger, so that residuals add up to zero, or 0.

        The part of the residuals that mixes worst is then gone, as arcs carry away nothing but a share of their sum.
        """
        figures = self._total
        # Sums without signs halve in between: otherwise, the same may follow again and again.
        if not self._everywhere or figures.norm > self._balanced / 2:
            return 0.0
        lacking = (1.0 - self._damping) * figures.mass - figures.total
        if abs(figures.total) <= _UNBALANCED * figures.norm or lacking <= 0.0:
            return 0.0
        factor = figures.total / lacking
        return factor if -0.5 < factor < 1.0 else 0.0

    def _share(self, ctx: Context, ranks: Ranks) -> Numbers:
        kernels.measure(ranks, self._idle, self._everywhere)
        self._everywhere = False
        shared = self._figures.copy()
        ctx.share(shared)
        return shared

    def _divisor(self) -> tuple[float, float]:
        """Return what ranks are divided by, and by how much that enlarges errors."""
        figures = self._total
        if figures.dangling and not self._leaks:
            return float(figures.scores + figures.total), 2.0
        return float(figures.mass), 1.0

    def _allowed(self) -> float:
        """Return the sum of residuals that proves the error."""
        (divisor, times), d, volume = self._divisor(), self._damping, self._total.volume
        found = self._tolerance * (1.0 - d) * divisor / times - 2.0 * volume
        # Below the least sum, pushes may gain nothing.
        return max(min(found / d if d else np.inf, self._total.mass), 8.0 * self._least * volume)

    def finish(self, ctx: Context) -> float:
        """Return the bound of the error."""
        (divisor, times), d = self._divisor(), self._damping
        if not self._total.mass:
            return 0.0
        error = (d * self._total.norm + 2.0 * self._total.volume) / (1.0 - d)
        return error * times / divisor + _ROUNDING

    def aggregate(self, partials: Sequence[float]) -> float:
        """Return the bound of the error, which all workers have."""
        return partials[0]

    def result(self, ctx: Context) -> Mapping[str, Array]:
        """Return the rank of each vertex."""
        vertices, state = ctx.vertices, ctx.state
        if not self._total.mass:
            return {"rank": np.zeros(len(vertices))}
        strengths = np.maximum(state["degrees"][vertices], 1)
        found = strengths * state["scores"][vertices] + state["residuals"][vertices]
        return {"rank": found / self._divisor()[0]}
