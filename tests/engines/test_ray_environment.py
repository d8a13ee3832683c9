"""Settings of Ray that must be there before it is imported."""

from __future__ import annotations

import sys

from headrace.engines.ray_environment import ray_environment


def test_a_process_that_knows_ray_already_makes_no_cluster_with_a_token(monkeypatch):
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setitem(sys.modules, "ray", sys)
    assert "RAY_AUTH_MODE" not in ray_environment()
    assert ray_environment(new_process=True)["RAY_AUTH_MODE"] == "token"
    monkeypatch.delitem(sys.modules, "ray")
    assert ray_environment()["RAY_AUTH_MODE"] == "token"
