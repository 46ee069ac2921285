"""What a model may return: a finite vector of the right length for each text; pure."""

import numpy as np
import pandas as pd
import pytest

from icecdc_core.table.vectors import checked_vectors


@pytest.mark.parametrize(
    "found",
    [
        pd.Series([[1, 2], [3.5, 4]]),
        pd.Series([np.array([1, 2]), np.array([3.5, 4], dtype="float32")]),
        np.array([[1, 2], [3.5, 4]]),
    ],
    ids=["lists", "arrays", "matrix"],
)
def it_takes_lists_and_arrays(found):
    assert checked_vectors(found, 2, 2).to_pylist() == [[1.0, 2.0], [3.5, 4.0]]


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([[1, 2]], "1 vectors of 2 texts"),
        ([[1, 2], [1, 2, 3]], "of 3 numbers, not 2"),
        ([[1, 2], [1, float("nan")]], "not finite"),
        ([[1, 2], [1, 1e300]], "not finite"),
        ([[1, 2], [1, None]], "not finite"),
        ([[1, 2], ["a", 2]], "could not convert"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def it_refuses_anything_else(found, problem):
    with pytest.raises(ValueError, match=problem):
        checked_vectors(pd.Series(found), 2, 2)
