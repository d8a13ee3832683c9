"""Alembic runs this on the connection that `headrace.ledger.migrate` hands it."""

from __future__ import annotations

from alembic import context

from headrace.ledger.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=False,  # The caller's transaction holds the lock and covers every step.
    render_as_batch=True,
)
context.run_migrations()
