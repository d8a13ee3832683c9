from dataclasses import replace

import pyarrow as pa
import pytest

from headrace import from_spark, read_arrow, write_arrow
from headrace.context import use_context
from headrace.exceptions import UserError
from tasks.boosted_trees import TreeSettings, train_trees
from tasks.feature_matrix import FEATURES, TARGET, build_vocabulary
from tasks.train_delay_model import train_delay_model


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 0},
        {"rounds": 1.5},
        {"rounds": True},
        {"max_depth": 17},
        {"learning_rate": 0},
        {"learning_rate": "fast"},
        {"learning_rate": float("nan")},
    ],
)
def test_a_parameter_out_of_range_is_named_with_its_range(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(UserError, match=rf"{name}={value!r} is not possible(.|\n)* from "):
        TreeSettings(**wrong)


def test_a_table_without_a_test_day_is_named(task_context, tmp_path):
    rows = pa.table({"split": ["train", "validation"]})
    with use_context(replace(task_context, lake=str(tmp_path))) as context:
        few = write_arrow(rows, "few", mode="overwrite")
        with pytest.raises(UserError, match=r"few@v0 has no flight in the split 'test'"):
            train_delay_model(few, context=context)


@pytest.mark.ray
@pytest.mark.spark
def test_model_and_baselines_are_measured_and_logged(demo):
    import mlflow

    run = mlflow.get_run(demo.run_id)
    assert set(demo.model["metrics"]) == {"model", "linear", "mean"}
    for name, values in demo.model["metrics"].items():
        for key, value in values.items():
            assert run.data.metrics[f"test_{name}_{key}"] == pytest.approx(value)
    assert demo.model["metrics"]["mean"]["r2"] <= 0
    assert run.data.params["xgboost.max_depth"] == "4"


@pytest.mark.ray
@pytest.mark.spark
def test_every_round_is_logged(demo):
    import mlflow

    client = mlflow.MlflowClient()
    train, validation = (
        [point.value for point in client.get_metric_history(demo.run_id, f"{split}_rmse")]
        for split in ("train", "validation")
    )
    assert len(train) == len(validation) >= demo.model["trees"]
    assert min(validation) == validation[demo.model["trees"] - 1]
    assert train[-1] < train[0]


@pytest.mark.ray
@pytest.mark.spark
def test_plots_are_logged(demo):
    import mlflow

    plots = {file.path for file in mlflow.MlflowClient().list_artifacts(demo.run_id, "plots")}
    assert plots == {
        f"plots/{name}.png"
        for name in (
            "learning", "importance", "predicted_against_actual", "error_by_hour",
            "error_by_carrier",
        )
    }  # fmt: skip


@pytest.mark.ray
@pytest.mark.spark
def test_the_registered_model_tells_its_columns_and_has_an_example(demo):
    import mlflow

    model = mlflow.pyfunc.load_model(demo.model["uri"])
    assert tuple(model.metadata.signature.inputs.input_names()) == FEATURES
    example = model.input_example
    assert list(example.columns) == list(FEATURES)
    assert len(model.predict(example)) == len(example)
    version = mlflow.MlflowClient().get_model_version(demo.model["name"], demo.model["version"])
    assert version.tags["features"] == str(demo.features)
    assert version.run_id == demo.run_id


@pytest.mark.ray
@pytest.mark.spark
def test_the_registered_model_takes_places_it_has_never_seen(demo):
    import mlflow

    model = mlflow.pyfunc.load_model(demo.model["uri"])
    unknown = model.input_example.assign(carrier="ZZ", dest="XXX", plane_seats=None)
    assert len(model.predict(unknown.astype({"plane_seats": "float32"}))) == len(unknown)


@pytest.mark.ray
@pytest.mark.spark
def test_the_same_seed_gives_the_same_trees(demo, task_context):
    import mlflow

    columns = [*FEATURES, TARGET]
    with use_context(task_context):
        train = read_arrow(demo.features, columns=columns, filter="split = 'train'")
        again = train_trees(
            from_spark(demo.features, columns=["split", *columns], filter="split <> 'test'"),
            build_vocabulary(train.to_pydict()),
            demo.settings,
            workers=task_context.workers,
            cores=task_context.cores,
        )
    history = mlflow.MlflowClient().get_metric_history(demo.run_id, "validation_rmse")
    assert again.history["validation"] == [point.value for point in history]
