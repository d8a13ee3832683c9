"""The ledger's tables, as SQLAlchemy sees them; `migrations/` makes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """A moment: aware in Python, UTC in the database, the same on SQLite and PostgreSQL."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        """To UTC; SQLite has no zones and keeps the bare UTC time."""
        if value is None:
            return None
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:  # noqa: ARG002
        """Back to an aware time."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class JsonText(sa.types.TypeDecorator[Any]):
    """Any JSON value as text: 6.0 comes back as 6.0, and a whole number of any size as itself.

    SQLite's JSON columns have numeric affinity, so that a bare 6.0 becomes 6 in them.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> str | None:  # noqa: ARG002
        """To text; None is NULL."""
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: Any) -> Any:  # noqa: ARG002
        """Back to the value."""
        return None if value is None else json.loads(value)


metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite only counts up by itself in an INTEGER column.
BigId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _lease_columns() -> list[sa.Column[Any]]:
    """A lease: who holds it, how often it was renewed, and when by the holder's own clock."""
    return [
        sa.Column("token", sa.String(32)),
        sa.Column("lease_s", sa.Float, nullable=False, server_default="45"),
        sa.Column("lease_expires_at", UtcDateTime),
        sa.Column("beat", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("beat_clock", sa.String(120)),
        sa.Column("beat_at", sa.Float),
        sa.Column("host", sa.String(255), nullable=False, server_default=""),
        sa.Column("pid", sa.Integer),
    ]


run = sa.Table(
    "run",
    metadata,
    sa.Column("number", BigId, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(40), nullable=False, unique=True),
    sa.Column("pipeline", sa.String(255), nullable=False),
    sa.Column("entrypoint", sa.Text, nullable=False),
    sa.Column("parameters", sa.JSON, nullable=False),
    sa.Column("environment", sa.String(255), nullable=False),
    sa.Column("user", sa.String(255), nullable=False),
    sa.Column("code_commit", sa.String(64)),
    sa.Column("code_dirty", sa.Boolean, nullable=False),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("started_at", UtcDateTime),
    sa.Column("ended_at", UtcDateTime),
    sa.Column("mlflow_run_id", sa.String(64)),
    sa.Column("prefect_flow_run_id", sa.String(64)),
    sa.Column("parent_run_id", sa.String(40)),
    sa.Column("trigger_key", sa.String(255)),
    sa.Column("tags", sa.JSON, nullable=False),
    sa.UniqueConstraint("pipeline", "trigger_key"),
    sa.Index("ix_run_pipeline_number", "pipeline", "number"),
    sa.Index("ix_run_state_number", "state", "number"),
    sa.Index("ix_run_created_at", "created_at"),
    sqlite_autoincrement=True,
)

repair = sa.Table(
    "repair",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.String(40), sa.ForeignKey("run.id"), nullable=False),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("parameters", sa.JSON, nullable=False),
    sa.Column("tasks", sa.JSON, nullable=False),
    sa.Column("with_dependents", sa.Boolean, nullable=False),
    sa.Column("profiles", sa.JSON, nullable=False),
    sa.Column("planned", sa.JSON, nullable=False),
    sa.Column("code_commit", sa.String(64)),
    sa.Column("code_dirty", sa.Boolean, nullable=False),
    sa.Column("user", sa.String(255), nullable=False),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("started_at", UtcDateTime),
    sa.Column("ended_at", UtcDateTime),
    sa.Column("prefect_flow_run_id", sa.String(64)),
    sa.Column("cancel_requested_at", UtcDateTime),
    *_lease_columns(),
    sa.UniqueConstraint("run_id", "seq"),
    sa.Index("ix_repair_prefect_flow_run_id", "prefect_flow_run_id"),
    sa.Index(
        "ix_repair_active",
        "state",
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    ),
    sqlite_autoincrement=True,
)

attempt = sa.Table(
    "attempt",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.String(40), sa.ForeignKey("run.id"), nullable=False),
    sa.Column("pipeline", sa.String(255), nullable=False),
    sa.Column("repair_seq", sa.Integer, nullable=False),
    sa.Column("task", sa.String(255), nullable=False),
    sa.Column("key", sa.String(1024), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("run_if", sa.String(30), nullable=False),
    sa.Column("depends_on", sa.JSON, nullable=False),
    sa.Column("profile", sa.String(255)),
    sa.Column("engine", sa.String(40)),
    sa.Column("limits", sa.JSON, nullable=False),
    sa.Column("inputs", sa.JSON, nullable=False),
    sa.Column("outputs", sa.JSON, nullable=False),
    sa.Column("result", JsonText),
    sa.Column("error", sa.JSON(none_as_null=True)),
    sa.Column("log_path", sa.Text),
    sa.Column("usage", sa.JSON(none_as_null=True)),
    sa.Column("started_at", UtcDateTime),
    sa.Column("ended_at", UtcDateTime),
    sa.Column("mlflow_run_id", sa.String(64)),
    sa.Column("prefect_task_run_id", sa.String(64)),
    sa.Column("reason", sa.Text),
    sa.Column("marked_by", sa.String(255)),
    sa.Column("reused_from", sa.BigInteger),
    *_lease_columns(),
    sa.UniqueConstraint("run_id", "task", "key", "number"),
    sa.Index(
        "ix_attempt_active",
        "state",
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    ),
    sa.Index(
        "ix_attempt_success",
        "pipeline",
        "task",
        "id",
        sqlite_where=sa.text("state = 'success'"),
        postgresql_where=sa.text("state = 'success'"),
    ),
    sqlite_autoincrement=True,
)

trigger = sa.Table(
    "trigger",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("pipeline", sa.String(255), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("cursor", JsonText, nullable=False),
    sa.Column("rev", sa.BigInteger, nullable=False),
    sa.Column("paused", sa.Boolean, nullable=False),
    sa.Column("paused_by", sa.String(255)),
    sa.Column("paused_in_prefect", sa.Boolean, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("fired_at", UtcDateTime),
    sa.Column("problem", sa.Text),
    sa.UniqueConstraint("pipeline", "name"),
    sqlite_autoincrement=True,
)

firing = sa.Table(
    "firing",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("pipeline", sa.String(255), nullable=False),
    sa.Column("trigger", sa.String(255), nullable=False),
    sa.Column("key", sa.String(255), nullable=False),
    sa.Column("decision", sa.String(20), nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("facts", JsonText, nullable=False),
    sa.Column("logical_time", UtcDateTime),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("run_id", sa.String(40)),
    sa.UniqueConstraint("pipeline", "trigger", "key"),
    sa.Index("ix_firing_run_id", "run_id"),
    sqlite_autoincrement=True,
)

trigger_file = sa.Table(
    "trigger_file",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("trigger_id", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("mtime_ns", sa.BigInteger, nullable=False),
    sa.Column("firing_id", sa.BigInteger),
    sa.UniqueConstraint("trigger_id", "digest"),
    sqlite_autoincrement=True,
)

notice = sa.Table(
    "notice",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("key", sa.String(255), nullable=False, unique=True),
    sa.Column("run_id", sa.String(40)),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("sent_at", UtcDateTime),
    sa.Column("error", sa.Text),
    sqlite_autoincrement=True,
)

usage_export = sa.Table(
    "usage_export",
    metadata,
    sa.Column("attempt_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("batch", sa.String(40), nullable=False),
    sa.Column("written_at", UtcDateTime),
    sa.Index("ix_usage_export_batch", "batch"),
)
