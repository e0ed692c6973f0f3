"""The fit against coefficients that the tests chose, and the errors against factors that they put in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from goffish.errors import InputError
from goffish.scheduling.estimate.features import JobShape, Usual, terms_of, values_of
from goffish.scheduling.estimate.fitting import FLOORS, fit, least_squares, quantile_above, quantile_below
from tests.scheduling.estimate import job_cases as cases


def test_the_fit_finds_the_coefficients_that_made_the_runs() -> None:
    """Breaks when a term, its unit or the share of a boundary is wrong, or start-up gets into the work."""
    model = fit(cases.exact_runs())
    found = {quantity: {k: v for k, v in given.items() if v > 1e-9} for quantity, given in model.coefficients.items()}
    work = dict(zip(("vertex", "arc", "superstep * partition"), cases.WORK, strict=True))
    assert found["work"] == pytest.approx(work, rel=1e-6)
    assert found["memory"] == pytest.approx(dict(zip(("vertex", "boundary arc"), cases.MEMORY, strict=True)), rel=1e-6)
    size = dict(zip(("vertex", "boundary arc"), cases.CHECKPOINT, strict=True))
    assert found["checkpoint"] == pytest.approx(size, rel=1e-6)
    assert (model.per_partition, model.per_byte) == pytest.approx(cases.WRITING, rel=1e-6)
    assert model.serial == pytest.approx(cases.SERIAL)
    assert (model.startup.cpu, model.startup.seconds, model.startup.memory) == (1.5, 1.25, 2.5e8)
    assert model.usual.supersteps == 6
    for quantity in ("work", "memory", "checkpoint", "seconds"):
        assert model.ratios[quantity] == pytest.approx([1.0] * 3, rel=1e-6)


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 6))
def test_least_squares_of_relative_errors(seed: int, terms: int, more: int) -> None:
    """Against SciPy's bounded least squares; breaks when errors are not relative, or coefficients fall below 0."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.1, 1.0, (terms + more, terms)) * 10.0 ** rng.integers(0, 7, terms)
    measured = 10.0 ** rng.uniform(-1, 3, terms + more)
    floor = 1.0
    scale = np.maximum(measured, floor)
    sizes = values.max(axis=0)
    theirs = lsq_linear(values / sizes / scale[:, None], measured / scale, (0, np.inf), tol=1e-14).x / sizes
    ours = least_squares(values, measured, floor)
    assert (ours >= 0).all()

    def cost(found: np.ndarray) -> float:
        return float((((values @ found - measured) / scale) ** 2).sum())

    assert cost(ours) <= cost(theirs) * (1 + 1e-6) + 1e-9


def test_errors_come_from_runs_that_were_not_fitted_to() -> None:
    """Breaks when a run that was fitted to is tested on, or one kept for the test changes the coefficients."""
    runs = cases.exact_runs()
    factors = [0.5, 1.5, 4.0]
    kept = iter(factors)
    changed = [run if run.fitted else cases.times(run, next(kept)) for run in runs]
    model = fit(changed)
    assert model.coefficients == fit(runs).coefficients
    for quantity in ("work", "memory", "checkpoint"):
        assert model.ratios[quantity] == pytest.approx(factors, rel=1e-6)
    shape = runs[0].shape
    assert model.band("work", shape) == pytest.approx((0.5, 4.0), rel=1e-6)


def test_an_unknown_boundary_has_an_error_of_its_own() -> None:
    """Breaks when a shape without a counted boundary is promised the error of one that has it."""
    runs = cases.exact_runs()
    model = fit(runs)
    shares = sorted((run.shape.boundary or 0) / run.shape.arcs for run in runs if run.fitted)
    assert model.usual.boundary == pytest.approx(shares[len(shares) // 2])
    wide = [
        np.dot(cases.CHECKPOINT, (run.shape.vertices, run.shape.boundary))
        / np.dot(cases.CHECKPOINT, (run.shape.vertices, model.usual.boundary * run.shape.arcs))
        for run in runs if not run.fitted
    ]  # fmt: skip
    assert model.ratios["checkpoint, file"] == pytest.approx(wide, rel=1e-6)
    unknown = replace(runs[0].shape, boundary=None)
    assert model.band("checkpoint", unknown) == pytest.approx((min(*wide, 1.0), max(*wide, 1.0)), rel=1e-6)


def test_quantiles_of_few_and_of_many() -> None:
    """The greatest of up to 10, then the split conformal one: of 20, the 19th; breaks when too little is covered."""
    assert quantile_above([1.1, 3.0, 2.0]) == 3.0
    assert quantile_above([0.2, 0.4]) == 1.0
    ratios = [1.0 + at / 100 for at in range(1, 100)]
    assert quantile_above(ratios) == pytest.approx(1.9)
    assert quantile_above(ratios[:10]) == ratios[9]
    assert quantile_above(ratios[:20]) == ratios[18]
    assert quantile_below([1.0 / ratio for ratio in ratios]) == pytest.approx(1 / 1.9)
    with pytest.raises(InputError, match="no test runs: the error of the estimate is unknown"):
        quantile_above([])


def test_too_little_is_measured() -> None:
    runs = cases.exact_runs()
    with pytest.raises(InputError, match="components on local: 1 runs to fit and 0 to test"):
        fit(runs[:1])


def test_what_cannot_be_measured_is_no_error() -> None:
    """Breaks when work below the resolution of the clock makes an error, or a division by 0."""
    runs = [replace(run, cpu=0.0) if not run.fitted else run for run in cases.exact_runs()]
    small = replace(runs[-1], shape=replace(runs[-1].shape, vertices=1, edges=1, boundary=0, partitions=1))
    model = fit([run for run in runs if run.fitted] + [small])
    assert model.ratios["work"] == [
        1.0 if model.value("work", small.shape) < FLOORS["work"] else pytest.approx(0.8, 0.2)
    ]


def test_terms_by_hand() -> None:
    usual = Usual(10.0, 0.25)
    shape = JobShape("betweenness", "mpi", 1000, 4000, 4, 2, sources=8)
    terms = terms_of("work", "betweenness")
    assert dict(zip(terms, values_of(terms, shape, usual), strict=True)) == {
        "vertex": 1000, "arc": 8000, "source * vertex": 8000, "source * arc": 64000, "source * boundary arc": 16000,
        "source * partition": 32,
    }  # fmt: skip
    exact = JobShape("betweenness", "mpi", 1000, 4000, 4, directed=True, boundary=7)
    assert values_of(("source * arc", "boundary arc"), exact, usual) == [4e6, 7]
    ranks = JobShape("pagerank", "local", 16, 64, 1, supersteps=30)
    found = values_of(("superstep * arc", "arc * log2 vertices", "boundary arc"), ranks, usual)
    assert found == [30 * 128, 128 * 4, 0]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"engine": "gpu"}, "engine = 'gpu'"), ({"algorithm": "closeness"}, "algorithm = 'closeness'"),
        ({"vertices": -1}, "vertices = -1"), ({"edges": 1.5}, r"edges = 1\.5"), ({"partitions": 0}, "partitions = 0"),
        ({"workers": True}, "workers = True"), ({"sources": 0}, "sources = 0"), ({"supersteps": 0}, "supersteps = 0"),
    ],
)  # fmt: skip
def test_shapes_that_cannot_be(wrong: dict, told: str) -> None:
    good = {"algorithm": "components", "engine": "local", "vertices": 1, "edges": 1, "partitions": 1}
    with pytest.raises(InputError, match=told):
        JobShape(**(good | wrong))
