from __future__ import annotations

import json
import socket
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from headrace.cli import machine_checks, service_checks
from headrace.cli.machine_checks import check_python, hiding_files
from headrace.profiles.load import load_environment


@pytest.fixture(autouse=True)
def _no_engine_is_asked(monkeypatch):
    """Java and the JAR cache have tests of their own; here they are simply there."""
    monkeypatch.setattr("headrace.engines.java.find_java", _Java)
    monkeypatch.setattr("headrace.engines.jars.missing_jars", list)


class _Java:
    version, source, home = 17, "PATH", "/jdk"


def _checks(result):
    return {check["name"]: check for check in json.loads(result.stdout)}


def test_a_sound_project_has_no_fault(headrace):
    result = headrace("doctor", "--json")
    checks = _checks(result)
    assert {name: check for name, check in checks.items() if check["state"] == "fault"} == {}
    assert result.exit_code == 0
    assert {"python", "packages", "environment", "names", "state folder", "java", "jars", "prefect", "mlflow", "ledger", "lake", "clock"} <= checks.keys()  # fmt: skip
    assert all(check["fix"] for check in checks.values() if check["state"] == "warning")


def test_the_page_for_people_ends_with_a_count(headrace):
    result = headrace("doctor")
    assert "✓ python" in result.stdout
    assert "0 faults" in result.stdout.splitlines()[-1]


def test_a_broken_environment_is_a_fault_with_the_errors_own_fix(headrace, project):
    (project / "infra" / "profiles" / "local.toml").write_text('[profiles.a]\nengine = "sparc"\n')
    result = headrace("doctor", "--json")
    check = _checks(result)["environment"]
    assert result.exit_code == 3
    assert check["state"] == "fault"
    assert "infra/profiles/local.toml:2: profiles.a.engine" in check["found"]
    assert check["fix"] == 'engine = "spark"'


def test_no_java_is_a_fault_with_the_errors_own_fix(headrace, monkeypatch):
    from headrace.exceptions import JavaNotFoundError

    def none():
        raise JavaNotFoundError(needed=17, found=["JAVA_HOME (none)"])

    monkeypatch.setattr("headrace.engines.java.find_java", none)
    check = _checks(headrace("doctor", "--json"))["java"]
    assert check["state"] == "fault"
    assert check["fix"]


def test_a_check_that_breaks_does_not_hide_the_others(headrace, monkeypatch):
    monkeypatch.setattr("headrace.engines.jars.missing_jars", lambda: 1 / 0)
    checks = _checks(headrace("doctor", "--json"))
    assert checks["jars"]["state"] == "fault"
    assert "division by zero" in checks["jars"]["found"]
    assert "clock" in checks


def test_a_profile_larger_than_the_machine_is_a_fault(headrace, monkeypatch):
    monkeypatch.setattr(machine_checks, "machine_memory", lambda: (63 * 1024**2, 32 * 1024**2))
    checks = _checks(headrace("doctor", "--json"))
    assert checks["profile etl"]["state"] == "fault"
    assert checks["profile etl"]["found"] == "memory = 64MiB, the machine has 63.0 MiB"
    monkeypatch.setattr(machine_checks, "machine_memory", lambda: (80 * 1024**2, 32 * 1024**2))
    checks = _checks(headrace("doctor", "--json"))
    assert checks["profile etl"]["state"] == "warning"


def test_a_state_folder_that_can_not_be_made_is_a_fault(headrace, project):
    (project / ".headrace").write_text("in the way")
    check = _checks(headrace("doctor", "--json"))["state folder"]
    assert check["state"] == "fault"
    assert "HEADRACE_STATE=/other/folder" in check["fix"]


def test_a_disk_that_is_nearly_full_is_said(headrace, monkeypatch):
    usage = machine_checks.shutil._ntuple_diskusage
    monkeypatch.setattr(machine_checks.shutil, "disk_usage", lambda _: usage(100, 99, 1))
    check = _checks(headrace("doctor", "--json"))["state folder"]
    assert check["state"] == "fault"
    assert "1 B free" in check["found"]


def test_a_port_that_is_written_and_taken_is_a_fault(headrace, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("HEADRACE_PREFECT_PORT", str(taken.getsockname()[1]))
        check = _checks(headrace("doctor", "--json"))["prefect"]
    assert check["state"] == "fault"
    assert "is taken" in check["found"]


def test_servers_that_do_not_answer_are_said(headrace, monkeypatch):
    monkeypatch.setenv("HEADRACE_PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setenv("HEADRACE_MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    checks = _checks(headrace("doctor", "--json"))
    assert (checks["prefect"]["state"], checks["mlflow"]["state"]) == ("fault", "warning")
    assert "runs are sent later" in checks["mlflow"]["found"]


class _Yesterday(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response_only(200)
        self.send_header("Date", formatdate(time.time() - 86400, usegmt=True))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_servers_clock_that_is_a_day_behind_is_a_warning(project, monkeypatch):
    server = HTTPServer(("127.0.0.1", 0), _Yesterday)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HEADRACE_MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_port}")
    try:
        environment = load_environment(root=project)
        check = service_checks.check_clock(environment, project)
    finally:
        server.shutdown()
        server.server_close()
    assert check.state == "warning"
    assert "away from this clock" in check.found


def test_a_ledger_that_can_not_be_reached_hides_its_password(headrace, monkeypatch):
    monkeypatch.setenv("HEADRACE_LEDGER_URL", "postgresql://me:hunter2@127.0.0.1:9/ledger")
    monkeypatch.setattr(service_checks, "TIMEOUT_S", 0)
    result = headrace("doctor", "--json")
    assert _checks(result)["ledger"]["state"] == "fault"
    assert "hunter2" not in result.stdout


def test_files_named_like_other_modules_are_found(project):
    (project / "flows").mkdir()
    for name in ("yaml.py", "json.py", "train_delays.py"):
        (project / "flows" / name).touch()
    hidden = {path.name: what for path, what in hiding_files(project)}
    assert hidden == {"json.py": "Python's module json", "yaml.py": "the package PyYAML"}


def test_an_unsupported_python_is_a_fault(monkeypatch):
    monkeypatch.setattr(machine_checks.sys, "version_info", (3, 10, 1, "final", 0))
    assert check_python() == (
        "python",
        "fault",
        "3.10.1 is not supported",
        "use Python 3.11 to 3.13",
    )


def test_the_lake_may_not_be_a_file(headrace, project):
    (project / ".headrace").mkdir()
    (project / ".headrace" / "lake").touch()
    check = _checks(headrace("doctor", "--json"))["lake"]
    assert (check["state"], check["fix"]) == ("fault", "change lake")
    assert check["found"] == f"{project}/.headrace/lake is a file"
