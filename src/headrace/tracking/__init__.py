"""What MLflow is told about a run, and what happens when it does not answer."""
