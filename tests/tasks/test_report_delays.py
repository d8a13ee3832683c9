import re
from pathlib import Path

import pytest

from tasks.report_tables import worst_routes


@pytest.mark.ray
@pytest.mark.spark
def test_the_report_tells_the_numbers_of_all_three_models(demo):
    page = Path(demo.report["path"]).read_text("utf-8")
    for values in demo.model["metrics"].values():
        assert f"{values['rmse']:.2f}" in page
        assert f"{values['r2']:z.3f}" in page
    assert f"{demo.predictions.row_count:,} flights of other days" in page
    assert f"{demo.model['train_rows']:,} flights" in page


@pytest.mark.ray
@pytest.mark.spark
def test_the_report_names_every_table_with_its_version(demo):
    page = Path(demo.report["path"]).read_text("utf-8")
    for name, ref in {
        **demo.tables,
        "features": demo.features,
        "predictions": demo.predictions,
    }.items():
        assert (
            f'<td>{name}</td><td class="n">{ref.version}</td><td class="n">{ref.row_count:,}</td>'
            in page
        )


@pytest.mark.ray
@pytest.mark.spark
def test_the_report_needs_no_other_file(demo):
    page = Path(demo.report["path"]).read_text("utf-8")
    sources = re.findall(r'(?:src|href)="([^"]{0,30})', page)
    assert len(sources) == 5
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert "$" not in re.sub(r'src="[^"]*"', "", page)


@pytest.mark.ray
@pytest.mark.spark
def test_the_report_is_attached_to_the_run(demo, task_context):
    [attached] = task_context.attachments
    assert (attached.path, attached.markdown) == (demo.report["path"], demo.report["markdown"])
    assert f"{demo.model['metrics']['model']['rmse']:.2f}" in demo.report["markdown"]


def test_few_flights_still_give_a_table_of_routes():
    import pandas as pd

    frame = pd.DataFrame(
        {"origin": ["LGA"], "dest": ["ATL"], "arr_delay": [5.0], "model": [3.0], "mean": [4.0]}
    )
    assert worst_routes(frame).rows["error"].tolist() == [2.0]
