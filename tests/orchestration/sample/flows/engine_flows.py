"""Pipelines whose tasks share an engine."""

import engine_steps as steps

from headrace import pipeline


@pipeline
def busy_spark() -> int:
    return steps.busy_spark()


@pipeline
def busy_ray() -> list:
    return steps.busy_ray()
