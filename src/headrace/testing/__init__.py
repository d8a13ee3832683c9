"""Pytest fixtures for projects that use headrace.

`from headrace.testing.fixtures import delta_table, local_ray, local_spark` in a `conftest.py`.
"""
