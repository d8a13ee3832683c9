"""`TableRef`: the small value that passes between tasks instead of data."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class TableRef(BaseModel):
    """One version of one Delta table, as small JSON.

    A Spark task returns it, the next task reads exactly that version, MLflow records both.

    Attributes:
        uri: Absolute path or `s3://` address of the table's root, without a trailing slash.
        version: Delta version, 0 or more.
        schema_hash: SHA-256 (hex) of the schema as canonical JSON; it tells two schemas apart.
        row_count: Rows in this version, or None when the log doesn't tell.
        file_count: Data files in this version, or None when unknown.
        name: The table's short name in the lake (`flights`), or None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str
    version: Annotated[int, Field(ge=0)]
    schema_hash: str
    row_count: Annotated[int, Field(ge=0)] | None = None
    file_count: Annotated[int, Field(ge=0)] | None = None
    name: str | None = None

    def __str__(self) -> str:
        return f"{self.name or self.uri}@v{self.version}"
