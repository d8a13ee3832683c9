"""The model that groups get in tests; workers import it, so it imports little."""

from __future__ import annotations

import sys

from headrace.ml.layers import current_layers


class Line:
    """A model: y = slope * x."""

    def __init__(self, frame, **facts):
        self.slope = float((frame.x * frame.y).sum() / (frame.x**2).sum())
        self.facts = {"rows": len(frame), **facts}

    def predict(self, frame):
        return frame["x"].to_numpy() * self.slope


def fit_line(frame):
    partition = None
    if "pyspark" in sys.modules:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = None if context is None else context.partitionId()
    return Line(frame, columns=list(frame), layers=current_layers(), partition=partition)
