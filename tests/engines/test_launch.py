from __future__ import annotations

import pickle
import re

import pytest

from headrace.exceptions import (
    ResultError,
    StateFolderError,
    TaskCrashedError,
    TaskFailedError,
    TaskTimeoutError,
)
from headrace.tables import TableRef

TABLE = TableRef(uri="/lake/flights", version=7, schema_hash="ab", row_count=3)


def test_values_and_table_references_come_back_as_they_are(project):
    result = project.run(
        """
        def job(table, numbers):
            return {"table": table, "all": [table, None, True, 1, 2.5, "é"], "numbers": numbers}
        """,
        arguments={"table": TABLE, "numbers": (1, 2)},
    )
    assert result.value == {
        "table": TABLE,
        "all": [TABLE, None, True, 1, 2.5, "é"],
        "numbers": [1, 2],
    }
    assert result.usage.cpu_s > 0
    assert result.usage.peak_memory_mib > 5


def test_what_the_task_read_wrote_and_attached_comes_back(project):
    result = project.run(
        """
        from headrace import TableRef, current_context

        def job(context):
            assert current_context() is context
            context.record_read(TableRef(uri="/a", version=1, schema_hash="x"))
            context.record_write(TableRef(uri="/b", version=0, schema_hash="x"), "append")
            context.attach("Report", path="report.html")
            return [context.run_id, context.task, context.attempt, context.key, context.parameters,
                    context.table_uri("t"), context.cores]
        """,
        key="2013-01",
        attempt=3,
        parameters={"year": 2013},
    )
    assert [item.ref.uri for item in result.reads] == ["/a"]
    assert [(item.ref.uri, item.mode) for item in result.writes] == [("/b", "append")]
    assert result.attachments[0].path == str(project.root / "report.html")
    lake = str(project.root / "lake" / "t")
    assert result.value == ["run1", "job", 3, "2013-01", {"year": 2013}, lake, 1]


def test_prints_and_log_records_reach_the_log_and_the_callback_line_by_line(project):
    project.run(
        """
        import os, subprocess, sys

        def job(context):
            print("from print")
            print("on stderr", file=sys.stderr)
            context.logger.info("from the logger")
            subprocess.run(["sh", "-c", "echo from a shell"])
            sys.stdout.write("no end of line")
        """
    )
    for text in ("from print", "on stderr", "from a shell", "no end of line"):
        assert text in project.lines
        assert text in project.log()
    assert any("INFO headrace.task: from the logger" in line for line in project.lines)


def test_a_users_error_keeps_its_type_text_and_traceback(project):
    with pytest.raises(TaskFailedError) as raised:
        project.run("def job():\n    return {}['month']\n")
    error = raised.value
    assert (error.error_type, error.error_message) == ("builtins.KeyError", "'month'")
    assert error.retryable
    assert str(error).startswith("KeyError: 'month'\nRaised in task 'job'.")
    assert "return {}['month']" in error.traceback
    assert "KeyError: 'month'" in project.log()
    assert pickle.loads(pickle.dumps(error)).traceback == error.traceback


def test_an_error_that_cannot_be_pickled_or_printed_is_told_all_the_same(project):
    with pytest.raises(TaskFailedError) as raised:
        project.run(
            """
            import threading

            class Odd(Exception):
                def __init__(self):
                    self.lock = threading.Lock()
                def __str__(self):
                    raise ValueError("no text")
                def __reduce__(self):
                    raise TypeError("cannot pickle this")

            def job():
                raise Odd
            """
        )
    assert raised.value.error_type.endswith(".Odd")
    assert "ValueError" in raised.value.error_message


def test_a_failed_attempt_tells_what_it_wrote_and_used(project):
    with pytest.raises(TaskFailedError) as raised:
        project.run(
            """
            from headrace import TableRef

            def job(context):
                context.record_write(TableRef(uri="/b", version=0, schema_hash="x"), "append")
                raise OSError("network")
            """
        )
    error = pickle.loads(pickle.dumps(raised.value))
    assert [item.ref.uri for item in error.attempt.writes] == ["/b"]
    assert error.attempt.usage.cpu_s > 0


def test_a_user_error_is_not_to_be_retried(project):
    with pytest.raises(TaskFailedError) as raised:
        project.run(
            """
            from headrace import UserError

            def job():
                raise UserError(message="wrong month")
            """
        )
    assert not raised.value.retryable
    assert str(raised.value).startswith("headrace.exceptions.UserError: wrong month")


@pytest.mark.parametrize(
    ("expression", "problem"),
    [("__import__('pyarrow').table({'a': [1]})", "pyarrow."), ("[float('nan')]", "nan at [0]")],
)
def test_a_result_that_is_no_small_json_fails_the_attempt(project, expression, problem):
    with pytest.raises(ResultError, match=re.escape(problem)):
        project.run(f"def job():\n    return {expression}\n")


@pytest.mark.parametrize(
    ("statement", "how"),
    [
        ("import sys; sys.exit(0)", "exited with code 0 without a result"),
        ("import os; os._exit(0)", "exited with code 0 without a result"),
        ("import os; os._exit(3)", "exited with code 3 without a result"),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL (signal 9)"),
        ("import ctypes; ctypes.string_at(0)", "was killed by SIGSEGV (signal 11)"),
        ("import os; os.kill(os.getpid(), 15)", "was ended by SIGTERM from outside"),
    ],
)
def test_a_process_that_ends_without_a_result_has_crashed(project, statement, how):
    with pytest.raises(TaskCrashedError) as raised:
        project.run(f"def job():\n    print('last words'); {statement}\n")
    assert raised.value.how.startswith(how)
    assert "last words" in raised.value.tail


def test_a_result_counts_only_with_exit_code_zero(project):
    with pytest.raises(TaskCrashedError, match="exited with code 5"):
        project.run(
            """
            import atexit, os

            def job():
                atexit.register(os._exit, 5)
                return 1
            """
        )


def test_a_task_that_takes_too_long_is_ended(project):
    with pytest.raises(TaskTimeoutError, match="longer than its limit of 1 s"):
        project.run("import time\ndef job():\n    time.sleep(600)\n", timeout_s=1)


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(project):
    (project.root / ".headrace").write_text("a file, not a folder")
    with pytest.raises(StateFolderError, match=r"\.headrace"):
        project.run("def job(): ...\n")


def test_secrets_are_on_disk_for_a_moment_only_and_never_in_the_environment(project):
    from headrace.profiles.storage import Storage

    result = project.run(
        """
        import os, pathlib

        def job(context):
            folder = pathlib.Path(".headrace/runs/run1/job/0")
            modes = {p.name: oct(p.stat().st_mode & 0o777) for p in folder.iterdir()}
            return [context.storage.secret_key.get_secret_value(), sorted(modes),
                    modes["spec.json"], "hush" in repr(os.environ),
                    "hush" in (folder / "spec.json").read_text()]
        """,
        storage=Storage(kind="s3", access_key="me", secret_key="hush"),
    )
    secret, files, mode, in_environment, in_spec = result.value
    assert secret == "hush"
    assert "secrets.json" not in files
    assert mode == "0o600"
    assert not in_environment
    assert not in_spec


def test_the_profiles_and_the_runs_variables_are_set_in_the_child_only(project):
    import os

    from headrace.profiles.models import PythonProfile

    profile = PythonProfile(name="tiny", cores=2, env={"MY_SETTING": "a b"})
    result = project.run(
        "import os\ndef job(): return [os.environ['MY_SETTING'], os.environ['MLFLOW_RUN_ID']]\n",
        profile=profile,
        env={"MLFLOW_RUN_ID": "abc"},
    )
    assert result.value == ["a b", "abc"]
    assert "MY_SETTING" not in os.environ


def test_the_child_loads_neither_prefect_nor_mlflow_for_a_decorated_task(project):
    result = project.run(
        """
        import sys
        from headrace import pipeline, python_task, ray_task

        @python_task(profile="tiny", retries=2)
        def helper(x):
            return x + 1

        @python_task
        def job():
            heavy = {"prefect", "mlflow", "ray", "pyspark", "pandas", "pyarrow"} & set(sys.modules)
            return [sorted(heavy), helper(1)]

        @pipeline
        def flow():
            job.submit()
        """
    )
    assert result.value == [[], 2]


def test_a_task_that_starts_another_task_is_told_to_call_it(project):
    with pytest.raises(TaskFailedError, match=r"inside a task's process"):
        project.run(
            """
            from headrace import python_task

            @python_task
            def helper(): ...

            @python_task
            def job():
                helper.submit()
            """
        )
