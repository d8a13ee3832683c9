import numpy as np
import pandas as pd  # noqa: TID253

from tasks.feature_matrix import (
    CATEGORIES,
    FEATURES,
    NUMBERS,
    build_vocabulary,
    encode_features,
    feature_types,
)

VOCABULARY = {"carrier": ["AA", "DL"], "origin": ["LGA"], "dest": ["ATL", "ORD"]}


def frame(*rows):
    usual = dict.fromkeys(NUMBERS, 1.5) | {"carrier": "DL", "origin": "LGA", "dest": "ATL"}
    return pd.DataFrame([usual | values for values in rows or [{}]])


def test_a_category_becomes_its_place_in_the_vocabulary():
    matrix = encode_features(frame(), VOCABULARY)
    assert matrix.dtype == np.float32
    assert matrix[0, : len(CATEGORIES)].tolist() == [1, 0, 0]
    assert set(matrix[0, len(CATEGORIES) :]) == {1.5}
    assert len(feature_types()) == len(FEATURES) == matrix.shape[1]


def test_unknown_and_missing_values_are_nan():
    matrix = encode_features(
        frame({"carrier": "ZZ", "dest": None, "temperature_f": None}), VOCABULARY
    )
    missing = {FEATURES[place] for place in np.flatnonzero(np.isnan(matrix[0]))}
    assert missing == {"carrier", "dest", "temperature_f"}


def test_columns_are_found_by_name():
    shuffled = frame()[sorted(FEATURES, reverse=True)]
    assert np.array_equal(
        encode_features(shuffled, VOCABULARY), encode_features(frame(), VOCABULARY)
    )


def test_arrow_backed_columns_give_the_same_matrix():
    plain = frame({}, {"carrier": "ZZ", "temperature_f": None})
    arrow = plain.convert_dtypes(dtype_backend="pyarrow")
    assert np.array_equal(
        encode_features(arrow, VOCABULARY), encode_features(plain, VOCABULARY), equal_nan=True
    )


def test_the_vocabulary_is_sorted_and_without_nulls():
    columns = {"carrier": ["DL", None, "AA", "DL"], "origin": ["LGA"], "dest": ["ORD", "ATL"]}
    assert build_vocabulary(columns) == VOCABULARY
