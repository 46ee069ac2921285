"""What a model may return: a finite vector of the right length for each text; pure."""

import numpy as np
import pandas as pd
import pytest

from icecdc_core.table.vectors import checked_vectors


@pytest.mark.filterwarnings("ignore:overflow")
def it_takes_lists_and_arrays_and_refuses_anything_else():
    lists, arrays = [[1, 2], [3.5, 4]], [np.array([1, 2]), np.array([3.5, 4], dtype="float32")]
    for found in (pd.Series(lists), pd.Series(arrays), np.array(lists)):
        assert checked_vectors(found, 2, 2).to_pylist() == [[1.0, 2.0], [3.5, 4.0]]
    for second, problem in (
        *(([], "1 vectors of 2 texts"), ([[1, 2, 3]], "of 3 numbers, not 2"), ([["a", 2]], "could not convert")),
        *(([[1, number]], "not finite") for number in (float("nan"), 1e300, None)),
    ):
        with pytest.raises(ValueError, match=problem):
            checked_vectors(pd.Series([[1, 2], *second]), 2, 2)
