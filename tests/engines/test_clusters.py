"""Clusters elsewhere: settings, versions, code that travels, jobs over HTTP."""

from __future__ import annotations

import json
import subprocess
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headrace.engines.code_zip import zip_code
from headrace.engines.job_api import JobApi
from headrace.engines.job_folder import JobFolder
from headrace.engines.job_process import own_storage
from headrace.engines.log_store import log_store_conf
from headrace.engines.ray_job import _check_lake, _env, _portable, job_id
from headrace.engines.spark_cluster import cluster_settings
from headrace.engines.spec import AttemptSpec, FunctionRef
from headrace.engines.versions import compare_versions
from headrace.exceptions import (
    CodeTooLargeError,
    EngineStartError,
    JobStorageError,
    VersionMismatchError,
)
from headrace.profiles.models import RayProfile, SparkProfile
from headrace.profiles.storage import Storage


def profile(**values) -> SparkProfile:
    return SparkProfile(name="etl", **{"cores": 8, "workers": 2, "memory_mib": 8192, **values})


def test_workers_of_a_spark_cluster_share_cores_and_memory():
    settings = cluster_settings(profile(), "spark://127.0.0.1:7077", [Path("/jars/a.jar")])
    assert settings["spark.master"] == "spark://127.0.0.1:7077"
    assert settings["spark.executor.cores"] == "4"
    assert settings["spark.cores.max"] == "8"
    assert settings["spark.executor.memory"] == "3072m"
    assert settings["spark.jars"] == "/jars/a.jar"
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert "spark.dynamicAllocation.enabled" not in settings


def test_bounds_let_the_number_of_workers_follow_the_work():
    settings = cluster_settings(profile(min_workers=1, max_workers=10), "spark://127.0.0.1:7077")
    assert settings["spark.dynamicAllocation.minExecutors"] == "1"
    assert settings["spark.dynamicAllocation.maxExecutors"] == "10"
    assert settings["spark.cores.max"] == "40"


def test_kubernetes_gets_image_labels_gpus_and_patience_with_spot_nodes():
    wanted = profile(image="me:1", node_labels={"pool": "spot"}, gpus=2.0, spot=True)
    settings = cluster_settings(wanted, "k8s://https://127.0.0.1:6443")
    assert settings["spark.kubernetes.container.image"] == "me:1"
    assert settings["spark.kubernetes.node.selector.pool"] == "spot"
    assert settings["spark.executor.resource.gpu.amount"] == "1"
    assert settings["spark.storage.decommission.enabled"] == "true"
    assert settings["spark.executor.instances"] == "2"


def test_a_played_cluster_gets_workers_that_fit_into_it():
    settings = cluster_settings(profile(), "local-cluster[2,1,1024]")
    assert settings["spark.executor.cores"] == "1"
    assert settings["spark.executor.memory"] == "1024m"


def test_commits_on_s3_go_through_our_log_store_and_others_don_t():
    assert log_store_conf(Storage()) == {}
    assert set(log_store_conf(Storage(kind="s3")).values()) == {"headrace.ConditionalLogStore"}


def test_all_differing_versions_are_named_at_once():
    here = {"python": "3.11", "ray": "2.60.0", "pandas": "2.3.0", "headrace": "0.1.0"}
    compare_versions(here, {**here, "more": "1"}, cluster="Ray")
    there = {"python": "3.12", "ray": "2.60.0"}
    with pytest.raises(VersionMismatchError) as caught:
        compare_versions(here, there, cluster="Ray", needed=("headrace",))
    assert "python is 3.11 here and 3.12 there" in str(caught.value)
    assert "headrace is 0.1.0 here and missing there" in str(caught.value)
    assert "pandas" not in str(caught.value)  # a cluster need not have everything


def make_project(root: Path) -> Path:
    for name in ("flows/a.py", "data/b.csv", ".git_not/secret", "infra/.env"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def names_of(archive: Path) -> set[str]:
    with zipfile.ZipFile(archive) as files:
        return set(files.namelist())


def test_code_travels_without_hidden_files_and_the_same_code_is_the_same_archive(tmp_path):
    root = make_project(tmp_path / "project")
    first, second = tmp_path / "1.zip", tmp_path / "2.zip"
    assert zip_code(root, first) == zip_code(root, second)
    assert first.read_bytes() == second.read_bytes()
    assert names_of(first) == {"flows/a.py", "data/b.csv"}
    (root / "flows" / "a.py").write_text("changed")
    zip_code(root, second)
    assert first.read_bytes() != second.read_bytes()


def test_what_git_ignores_stays_here(tmp_path):
    root = make_project(tmp_path / "project")
    subprocess.run(["git", "init", "-q", root], check=True)
    (root / ".gitignore").write_text("data/\n")
    zip_code(root, tmp_path / "code.zip")
    assert names_of(tmp_path / "code.zip") == {"flows/a.py"}


def test_too_much_code_names_the_largest_file(tmp_path):
    root = make_project(tmp_path / "project")
    with (root / "data" / "huge.bin").open("wb") as file:
        file.truncate(60 * 2**20)
    with pytest.raises(CodeTooLargeError, match=r"huge\.bin"):
        zip_code(root, tmp_path / "code.zip")


def spec_of(tmp_path: Path, **values) -> AttemptSpec:
    given = {
        "kind": "ray",
        "function": FunctionRef(module="tasks.t", name="t", file=tmp_path / "tasks" / "t.py"),
        "run_id": "r1",
        "task": "train model",
        "lake": "s3://lake",
        "profile": RayProfile(name="train", where="job", address="http://host:8265"),
        "storage": Storage(kind="s3", access_key="me", secret_key="hunter2"),
        "root": tmp_path,
        "folder": tmp_path / "attempt",
        "env": {"MLFLOW_TRACKING_TOKEN": "hunter2"},
        "address": "http://host:8265",
    }
    return AttemptSpec(**{**given, **values})


def test_attempts_of_a_task_are_jobs_of_one_name_and_items_of_others(tmp_path):
    assert job_id(spec_of(tmp_path, attempt=2)) == "headrace-r1-train-model.2"
    assert job_id(spec_of(tmp_path, key="a")) != job_id(spec_of(tmp_path, key="b"))


def test_what_travels_to_a_cluster_holds_no_secret_and_no_path_of_this_machine(tmp_path):
    told = json.dumps(_portable(spec_of(tmp_path)))
    assert "hunter2" not in told
    assert json.loads(told)["function"]["file"] == "tasks/t.py"


def test_what_everybody_sees_of_a_job_holds_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hunter2@mlflow:5000")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter2")
    monkeypatch.setenv("MLFLOW_RUN_ID", "run")
    env = _env(spec_of(tmp_path))
    assert env["MLFLOW_RUN_ID"] == "run"
    assert json.loads(env["HEADRACE_JOB"])["job"] == "headrace-r1-train-model.1"
    assert "hunter2" not in str(env)


def test_a_folder_as_lake_is_refused_for_a_cluster_elsewhere(tmp_path):
    spec = spec_of(tmp_path, lake=str(tmp_path))
    _check_lake(spec, "http://127.0.0.1:8265")
    with pytest.raises(JobStorageError, match="s3://BUCKET"):
        _check_lake(spec, "http://ray.example.com:8265")


def test_a_cluster_s_own_address_and_keys_go_before_those_that_a_run_brings():
    sent = {"kind": "s3", "endpoint": "http://127.0.0.1:1", "allow_http": True}
    own = {
        "HEADRACE_STORAGE_ENDPOINT": "http://s3:7070",
        "HEADRACE_STORAGE_ACCESS_KEY": "me",
        "HEADRACE_STORAGE_SECRET_KEY": "hunter2",
    }
    storage = own_storage(sent, own)
    assert storage.endpoint == "http://s3:7070"
    assert storage.secret_key.get_secret_value() == "hunter2"
    assert own_storage(sent, {}).endpoint == "http://127.0.0.1:1"


def test_a_job_s_folder_keeps_values_and_files_and_goes(tmp_path):
    folder = JobFolder(str(tmp_path / "lake"), "job.1", Storage())
    assert folder.read("result.json") is None
    folder.write("result.json", {"ok": True})
    assert folder.read("result.json") == {"ok": True}
    page = tmp_path / "page.html"
    page.write_text("page")
    fetched = folder.fetch_file(folder.put_file(page, 0), tmp_path / "here")
    assert (fetched.name, fetched.read_text()) == ("page.html", "page")
    folder.remove()
    folder.remove()
    assert not (tmp_path / "lake" / "_headrace" / "jobs" / "job.1").exists()


class Server(BaseHTTPRequestHandler):
    """A job server's answers, as they are told."""

    answers: list[tuple[int, str]]
    seen: list[tuple[str, str, str | None]]

    def do_GET(self):
        self.seen.append((self.command, self.path, self.headers["Authorization"]))
        status, text = self.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    kind = type("ThisServer", (Server,), {"answers": [], "seen": []})
    http = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield kind, JobApi(f"http://127.0.0.1:{http.server_port}", "hunter2", patience_s=3)
    http.shutdown()


def test_a_busy_job_server_is_asked_again_with_the_token(server):
    kind, api = server
    kind.answers += [(500, "no agent yet"), (200, '{"ray_version": "2.60.0"}')]
    assert api.version() == "2.60.0"
    assert kind.seen == [("GET", "/api/version", "Bearer hunter2")] * 2
    assert "hunter2" not in repr(api)


def test_a_wrong_token_is_said_at_once_and_an_unknown_job_is_none(server):
    kind, api = server
    kind.answers += [(403, "Forbidden"), (404, "no such job")]
    with pytest.raises(EngineStartError, match="token"):
        api.jobs()
    assert api.info("x") is None


def test_a_job_whose_first_answer_was_lost_is_not_started_twice(server):
    kind, api = server
    kind.answers += [(500, "ValueError: Job with submission_id x already exists.")]
    api.submit({"submission_id": "x"})


def test_a_server_that_isn_t_there_is_named():
    with pytest.raises(EngineStartError, match=r"127\.0\.0\.1:9 .*does not answer"):
        JobApi("http://127.0.0.1:9", patience_s=0).version()
