"""Pipelines and tasks as real Prefect flows and tasks; runs, and the servers behind them."""
