"""Alembic's environment of the ledger; `headrace.ledger.migrate` runs it."""
