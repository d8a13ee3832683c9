"""What a model of delays has to beat: the mean, and a linear model on the same features."""

from typing import TYPE_CHECKING

import numpy as np

from tasks.feature_matrix import CATEGORIES, FEATURES

if TYPE_CHECKING:
    from numpy.typing import NDArray


def predict_mean(target: "NDArray[np.float32]", rows: int) -> "NDArray[np.float32]":
    """The mean delay of the training flights, for every flight."""
    return np.full(rows, target.mean(dtype=np.float64), dtype=np.float32)


def predict_linear(
    train: "NDArray[np.float32]", target: "NDArray[np.float32]", test: "NDArray[np.float32]"
) -> "NDArray[np.float32]":
    """Ridge regression on the same features: categories one-hot, empty numbers as their mean."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    places = list(range(len(FEATURES)))
    prepare = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", dtype=np.float32), places[: len(CATEGORIES)]),
        (
            make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler()),
            places[len(CATEGORIES) :],
        ),
    )
    model = make_pipeline(prepare, Ridge(alpha=10.0))
    predicted: NDArray[np.float32] = model.fit(train, target).predict(test)
    return predicted
