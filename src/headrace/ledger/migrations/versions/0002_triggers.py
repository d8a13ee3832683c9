"""Triggers: cursors, what they fired, files that were handled; notices; usage that was written."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headrace.ledger.schema import BigId, JsonText, UtcDateTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the five tables."""
    _create_trigger()
    _create_firing()
    _create_trigger_file()
    _create_notice()
    _create_usage_export()


def downgrade() -> None:
    """Drop them."""
    for table in ("usage_export", "notice", "trigger_file", "firing", "trigger"):
        op.drop_table(table)


def _create_trigger() -> None:
    op.create_table(
        "trigger",
        sa.Column("id", BigId, autoincrement=True),
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
        sa.PrimaryKeyConstraint("id", name="pk_trigger"),
        sa.UniqueConstraint("pipeline", "name", name="uq_trigger_pipeline_name"),
        sqlite_autoincrement=True,
    )


def _create_firing() -> None:
    op.create_table(
        "firing",
        sa.Column("id", BigId, autoincrement=True),
        sa.Column("pipeline", sa.String(255), nullable=False),
        sa.Column("trigger", sa.String(255), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("decision", sa.String(20), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("facts", JsonText, nullable=False),
        sa.Column("logical_time", UtcDateTime),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("run_id", sa.String(40)),
        sa.PrimaryKeyConstraint("id", name="pk_firing"),
        sa.UniqueConstraint("pipeline", "trigger", "key", name="uq_firing_pipeline_trigger_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_firing_run_id", "firing", ["run_id"])


def _create_trigger_file() -> None:
    op.create_table(
        "trigger_file",
        sa.Column("id", BigId, autoincrement=True),
        sa.Column("trigger_id", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("mtime_ns", sa.BigInteger, nullable=False),
        sa.Column("firing_id", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_trigger_file"),
        sa.UniqueConstraint("trigger_id", "digest", name="uq_trigger_file_trigger_id_digest"),
        sqlite_autoincrement=True,
    )


def _create_notice() -> None:
    op.create_table(
        "notice",
        sa.Column("id", BigId, autoincrement=True),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("run_id", sa.String(40)),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("sent_at", UtcDateTime),
        sa.Column("error", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_notice"),
        sa.UniqueConstraint("key", name="uq_notice_key"),
        sqlite_autoincrement=True,
    )


def _create_usage_export() -> None:
    op.create_table(
        "usage_export",
        sa.Column("attempt_id", sa.BigInteger, autoincrement=False),
        sa.Column("batch", sa.String(40), nullable=False),
        sa.Column("written_at", UtcDateTime),
        sa.PrimaryKeyConstraint("attempt_id", name="pk_usage_export"),
    )
    op.create_index("ix_usage_export_batch", "usage_export", ["batch"])
