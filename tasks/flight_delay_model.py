"""The registered model: feature columns in, minutes of arrival delay out.

MLflow keeps a copy of this file with the model and runs it to load the model, so that a model does
not depend on a pickle, nor on the project that trained it.
"""

import json
from pathlib import Path
from typing import Any

# The class below is MLflow's, which reads its annotations; only MLflow loads this file.
import mlflow  # noqa: TID253
import numpy as np
import pandas as pd  # noqa: TID253
from numpy.typing import NDArray

from tasks.feature_matrix import FEATURES, encode_features, feature_types


class FlightDelayModel(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """XGBoost behind the columns that a person reads: `carrier`, `origin`, `temperature_f`, ..."""

    def load_context(self, context: Any) -> None:
        """Read the trees and the vocabulary, once per process."""
        import xgboost

        self.booster = xgboost.Booster(model_file=context.artifacts["booster"])
        self.vocabulary = json.loads(Path(context.artifacts["vocabulary"]).read_text())

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> NDArray[np.float32]:
        """Predict the arrival delay in minutes, one number per row."""
        del context, params
        import xgboost

        matrix = xgboost.DMatrix(
            encode_features(model_input, self.vocabulary),
            feature_names=list(FEATURES),
            feature_types=feature_types(),
            enable_categorical=True,
        )
        predicted: NDArray[np.float32] = self.booster.predict(matrix)
        return predicted


mlflow.models.set_model(FlightDelayModel())
