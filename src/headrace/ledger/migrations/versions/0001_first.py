"""Runs, repairs, attempts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headrace.ledger.schema import BigId, JsonText, UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the three tables."""
    _create_run()
    _create_repair()
    _create_attempt()


def downgrade() -> None:
    """Drop them."""
    for table in ("attempt", "repair", "run"):
        op.drop_table(table)


def _lease_columns() -> list[sa.Column[object]]:
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


def _create_run() -> None:
    op.create_table(
        "run",
        sa.Column("number", BigId, autoincrement=True),
        sa.Column("id", sa.String(40), nullable=False),
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
        sa.PrimaryKeyConstraint("number", name="pk_run"),
        sa.UniqueConstraint("id", name="uq_run_id"),
        sa.UniqueConstraint("pipeline", "trigger_key", name="uq_run_pipeline_trigger_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_run_pipeline_number", "run", ["pipeline", "number"])
    op.create_index("ix_run_state_number", "run", ["state", "number"])
    op.create_index("ix_run_created_at", "run", ["created_at"])


def _create_repair() -> None:
    op.create_table(
        "repair",
        sa.Column("id", BigId, autoincrement=True),
        sa.Column("run_id", sa.String(40), nullable=False),
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
        sa.PrimaryKeyConstraint("id", name="pk_repair"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_repair_run_id"),
        sa.UniqueConstraint("run_id", "seq", name="uq_repair_run_id_seq"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_repair_prefect_flow_run_id", "repair", ["prefect_flow_run_id"])
    _create_active_index("repair")


def _create_attempt() -> None:
    op.create_table(
        "attempt",
        sa.Column("id", BigId, autoincrement=True),
        sa.Column("run_id", sa.String(40), nullable=False),
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
        sa.PrimaryKeyConstraint("id", name="pk_attempt"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_attempt_run_id"),
        sa.UniqueConstraint(
            "run_id", "task", "key", "number", name="uq_attempt_run_id_task_key_number"
        ),
        sqlite_autoincrement=True,
    )
    _create_active_index("attempt")
    op.create_index(
        "ix_attempt_success",
        "attempt",
        ["pipeline", "task", "id"],
        sqlite_where=sa.text("state = 'success'"),
        postgresql_where=sa.text("state = 'success'"),
    )


def _create_active_index(table: str) -> None:
    """A small index of what runs now: leases are looked over every few seconds."""
    op.create_index(
        f"ix_{table}_active",
        table,
        ["state"],
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )
