"""Put a trained model into MLflow's registry, with all that somebody needs to use it."""

import json
import shutil
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.boosted_trees import TrainedTrees
from tasks.feature_matrix import CATEGORIES, FEATURES, Vocabulary

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models import ModelSignature

MODEL_NAME = "flight-delay"

_HERE = Path(__file__).parent
_REQUIREMENTS = ("mlflow", "numpy", "pandas", "xgboost-cpu")


def register_model(
    trees: TrainedTrees, vocabulary: Vocabulary, example: "pd.DataFrame", tags: dict[str, str]
) -> int:
    """Log the model to the current MLflow run and register it as `flight-delay`.

    Args:
        trees: The trained trees.
        vocabulary: Values of the categorical features.
        example: A few rows of features, kept with the model as its input example.
        tags: Tags of the new version.

    Returns:
        The version that the registry gave it.
    """
    import mlflow

    with tempfile.TemporaryDirectory(prefix="model-") as folder:
        booster, words = Path(folder, "booster.ubj"), Path(folder, "vocabulary.json")
        booster.write_bytes(trees.model)
        words.write_text(json.dumps(vocabulary, indent=1))
        info = mlflow.pyfunc.log_model(
            name="model",
            python_model=str(_HERE / "flight_delay_model.py"),
            artifacts={"booster": str(booster), "vocabulary": str(words)},
            code_paths=[_copy_encoding(Path(folder))],
            signature=_signature(),
            input_example=example[list(FEATURES)],
            # Given by hand: to find them out, MLflow would load the model in a process of its own.
            pip_requirements=[f"{name}=={metadata.version(name)}" for name in _REQUIREMENTS],
            registered_model_name=MODEL_NAME,
        )
    version = int(info.registered_model_version)
    client = mlflow.MlflowClient()
    for key, value in tags.items():
        client.set_model_version_tag(MODEL_NAME, str(version), key, value)
    return version


def _copy_encoding(folder: Path) -> str:
    """A folder `tasks` with nothing but the encoding, which the model's own file imports."""
    package = folder / "tasks"
    package.mkdir()
    shutil.copy(_HERE / "feature_matrix.py", package)
    return str(package)


def _signature() -> "ModelSignature":
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    columns = [
        ColSpec("string" if name in CATEGORIES else "float", name, required=name in CATEGORIES)
        for name in FEATURES
    ]
    return ModelSignature(inputs=Schema(columns), outputs=Schema([ColSpec("float")]))
