"""Agreement of two divisions: closed forms, and scikit-learn where it is quick enough."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.algorithms.communities.agreement import agreement
from goffish.errors import InputError


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([0, 0, 1, 1, 2], [5, 5, 3, 3, 9]),
        (["a", "a", "b"], [0, 0, 1]),
        ([7], [1]),
        ([0, 1, 2, 3], [3, 2, 1, 0]),
        ([1, 1, 1], ["x", "x", "x"]),
    ],
)
def test_the_same_division_under_other_names_agrees_fully(first: list[object], second: list[object]) -> None:
    assert agreement(first, second) == pytest.approx({"nmi": 1.0, "ari": 1.0, "ami": 1.0}, abs=1e-12)


def test_small_divisions_by_hand() -> None:
    # Contingency [[2, 0], [1, 1]]: 6 pairs, together in the first 2, in the second 3, in both 1.
    got = agreement([0, 0, 1, 1], [0, 0, 0, 1])
    expected_pairs = 2 * 3 / 6
    assert got["ari"] == pytest.approx((1 - expected_pairs) / ((2 + 3) / 2 - expected_pairs), abs=1e-12)
    h_first, h_second = math.log(2), -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    mutual = 0.5 * math.log(4 / 3) + 0.25 * math.log(2 / 3) + 0.25 * math.log(2)
    assert got["nmi"] == pytest.approx(mutual / ((h_first + h_second) / 2), abs=1e-12)
    # The single vertex of the second division falls into either half of the first: always this contingency.
    assert got["ami"] == pytest.approx(0.0, abs=1e-12)


def test_crossed_divisions_share_nothing() -> None:
    # Every pair of groups once: no information; fewer common pairs than by chance.
    rows, columns = np.divmod(np.arange(36), 6)
    got = agreement(rows, columns)
    assert got["nmi"] == pytest.approx(0.0, abs=1e-12)
    together = 6 * 15
    by_chance = together**2 / (36 * 35 / 2)
    assert got["ari"] == pytest.approx(-by_chance / (together - by_chance), abs=1e-12)
    assert got["ami"] < 0


def test_independent_divisions_are_adjusted_to_nothing() -> None:
    rng = np.random.default_rng(1)
    got = agreement(rng.integers(0, 500, 20_000), rng.integers(0, 500, 20_000))
    assert abs(got["ari"]) < 0.002
    assert abs(got["ami"]) < 0.01
    assert got["nmi"] > 0.3, "many small groups look alike by chance; the adjusted measures must not be fooled"


def test_one_group_against_several() -> None:
    assert agreement([0, 0, 0, 0], [0, 1, 1, 2]) == pytest.approx({"nmi": 0.0, "ari": 0.0, "ami": 0.0}, abs=1e-12)


@given(
    st.integers(1, 60).flatmap(
        lambda n: st.tuples(*[st.lists(st.integers(0, 7), min_size=n, max_size=n) for _ in range(2)])
    )
)
def test_random_divisions_against_scikit_learn(columns: tuple[list[int], list[int]]) -> None:
    from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, normalized_mutual_info_score

    got = agreement(*columns)
    assert got["nmi"] == pytest.approx(normalized_mutual_info_score(*columns), abs=1e-12)
    assert got["ari"] == pytest.approx(adjusted_rand_score(*columns), abs=1e-12)
    # Where chance alone is perfect up to rounding, scikit-learn's quotient is rounding noise.
    assert got["ami"] == pytest.approx(adjusted_mutual_info_score(*columns), abs=1e-8)
    assert got == pytest.approx(agreement(*columns[::-1]), abs=1e-12)


def test_large_groups_against_scikit_learn() -> None:
    from sklearn.metrics import adjusted_mutual_info_score

    rng = np.random.default_rng(2)
    truth = rng.integers(0, 60, 100_000)
    found = np.where(rng.random(truth.size) < 0.4, truth, rng.integers(0, 90, truth.size))
    assert agreement(truth, found)["ami"] == pytest.approx(adjusted_mutual_info_score(truth, found), abs=1e-9)


def test_a_million_things_in_many_groups_take_no_time() -> None:
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 40_000, 1_000_000)
    found = np.where(rng.random(truth.size) < 0.9, truth, rng.integers(0, 40_000, truth.size))
    got = agreement(truth, found)
    assert 0.7 < got["ari"] < 0.9
    assert 0.7 < got["ami"] < got["nmi"]


@pytest.mark.parametrize(
    "column",
    [
        np.array([3, 3, 1]),
        np.array(["x", "x", "y"]),
        pa.array(["x", "x", "y"]),
        pa.chunked_array([["x"], ["x", "y"]]),
        pa.array(["x", "x", "y"]).dictionary_encode(),
        pd.Series([1.5, 1.5, 2.5], index=[9, 8, 7]),
        pd.Series(["x", "x", "y"], dtype="category"),
        pl.Series(["x", "x", "y"]),
        [("a", 1), ("a", 1), ("a", 2)],
        [frozenset({1}), frozenset({1}), "mixed"],
        (True, True, False),
    ],
)
def test_columns_of_any_library_and_type(column: object) -> None:
    assert agreement(column, [0, 0, 1]) == {"nmi": 1.0, "ari": 1.0, "ami": 1.0}


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ([0, 1], [0, 1, 1], "2 rows, second has 3"),
        ([], [], "empty"),
        ([0, None], [0, 1], "first: row 1 has no group"),
        ([0, 1], [0.5, float("nan")], "second: row 1 has no group"),
        ([[0], [1]], [0, 1], "hashable"),
        (np.zeros((2, 2)), [0, 1], r"shape \(2, 2\)"),
        (pd.DataFrame({"a": [1]}), [0], "one column"),
        (5, [0], "first is of type int"),
        ("ab", [0, 1], "first is of type str"),
        (None, [0, 1], "first is None"),
    ],
)
def test_what_cannot_be_compared(first: object, second: object, told: str) -> None:
    with pytest.raises(InputError, match=told):
        agreement(first, second)
