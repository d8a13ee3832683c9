"""Background servers: started once, found again, ended with all that they started."""

from __future__ import annotations

import json
import socket
import sys
import threading
import urllib.request

import psutil
import pytest

from headrace.exceptions import PortInUseError, ServerStartError
from headrace.orchestration.servers import Server

SERVE = "import http.server,sys; http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind='127.0.0.1')"


def server(folder, **changes):
    values = {
        "name": "files",
        "folder": folder,
        "usual_port": 47231,
        "health_path": "/",
        "command": lambda port: [sys.executable, "-c", SERVE, str(port)],
    }
    return Server(**{**values, **changes})


def test_a_server_is_started_once_and_found_again(tmp_path):
    first = server(tmp_path)
    try:
        urls = []
        threads = [threading.Thread(target=lambda: urls.append(first.ensure())) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(urls)) == 1
        assert server(tmp_path).find() == urls[0]
        assert urllib.request.urlopen(urls[0]).status == 200
        pid = json.loads(first.state_file.read_text())["pid"]
    finally:
        assert first.stop()
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert first.find() is None
    assert first.stop() is False


def test_a_taken_usual_port_is_no_obstacle(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        free = server(tmp_path, usual_port=port)
        try:
            assert free.ensure() != f"http://127.0.0.1:{port}"
        finally:
            free.stop()


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=str(port)) as caught:
            server(tmp_path, port=port).ensure()
    assert "process" in str(caught.value)


def test_a_server_that_ends_at_once_shows_its_log(tmp_path):
    broken = server(
        tmp_path, command=lambda port: [sys.executable, "-c", "raise SystemExit('no such module')"]
    )
    with pytest.raises(ServerStartError, match="no such module") as caught:
        broken.ensure()
    assert "exit code 1" in str(caught.value)
    assert not broken.state_file.exists()


def test_a_server_is_found_also_when_the_clock_was_set_back(tmp_path, monkeypatch):
    one = server(tmp_path)
    try:
        url = one.ensure()
        real = psutil.Process.create_time
        monkeypatch.setattr(psutil.Process, "create_time", lambda process: real(process) - 3600)
        assert one.find() == url
    finally:
        one.stop()


def test_a_state_file_of_another_process_is_not_trusted(tmp_path):
    old = server(tmp_path)
    # The id of this very process, with the start time of one that is long gone.
    state = {"pid": psutil.Process().pid, "started": 1.0, "url": "http://127.0.0.1:1"}
    old.state_file.write_text(json.dumps(state))
    assert old.find() is None
    assert old.stop() is False


@pytest.mark.prefect
def test_prefects_pages_look_for_the_api_at_their_own_address(prefect_url):
    root = prefect_url.removesuffix("/api")
    settings = json.loads(urllib.request.urlopen(f"{root}/ui-settings").read())
    assert settings["api_url"] == prefect_url
