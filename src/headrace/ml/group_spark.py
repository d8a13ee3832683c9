"""Groups of a table on Spark: counted in SQL, trained in `groupBy().applyInPandas`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.delta.schema import Primitive
from headrace.delta.spark import read_table
from headrace.delta.spark_layout import quote
from headrace.ml.group_desk import Job
from headrace.ml.group_plan import Group
from headrace.ml.group_rows import NUMBER_BYTES, OBJECT_BYTES, TEXT_BYTES
from headrace.ml.group_source import Counted, Source, batch_plans, group_list
from headrace.ml.group_work import train_group
from headrace.ml.hosts import spark_host
from headrace.ml.sampling import sample_batches
from headrace.ml.spark_job import SparkJob
from headrace.ml.wire import Address

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SCHEME: Final = "spark-xxhash64"

_GROUP, _BIN = "__headrace_group", "__headrace_bin"
_ADDED: Final = [_GROUP, _BIN]
_ONE_NUMBER: Final = frozenset(
    ["byte", "short", "integer", "long", "float", "double", "boolean", "timestamp", "timestamp_ntz"]
)


class SparkGroups:
    """The groups of one table version in Spark.

    Args:
        spark: The session.
        source: The table.
    """

    scheme = SCHEME

    def __init__(self, spark: SparkSession, source: Source) -> None:
        self._spark = spark
        self._source = source
        frame = read_table(source.ref, spark=spark)
        if source.filter is not None:
            frame = frame.where(source.filter)
        self._frame = frame.select(*(quote(name) for name in source.columns))
        self._bins: Sequence[Sequence[int]] = ()
        self._groups: dict[int, Group] = {}
        self.host = spark_host(spark)

    def count(self) -> Counted:
        """Rows, bytes and fingerprint of every group, and nulls by column, in one pass."""
        from pyspark.sql import functions as fn

        names, by = self._source.columns, self._source.by
        nulls = [fn.sum(fn.col(quote(name)).isNull().cast("long")) for name in names]
        hashed = fn.sum(self._row_hash().cast("decimal(20,0)"))
        grouped = self._frame.groupBy(*(quote(name) for name in by))
        rows = grouped.agg(fn.count(fn.lit(1)), fn.sum(self._row_bytes()), hashed, *nulls).collect()
        width = len(by)
        measured = {
            tuple(row[:width]): (row[width], row[width + 1], row[width + 2]) for row in rows
        }
        totals = [sum(row[width + 3 + at] for row in rows) for at in range(len(names))]
        return Counted(group_list(measured), dict(zip(names, totals, strict=True)))

    def place(self, groups: Sequence[Group], bins: Sequence[Sequence[int]]) -> None:
        """Note which group goes to which bin."""
        self._groups = {group.number: group for group in groups}
        self._bins = bins

    def train(self, address: Address, numbers: Sequence[int]) -> Job:
        """Train groups, each with all its rows as one frame."""

        def train(key: Any, frame: Any) -> Any:
            number = int(key[0])
            train_group(address, number, lambda: frame.drop(columns=_ADDED))
            return _nothing()

        return self._start(train, numbers)

    def train_batches(
        self, address: Address, numbers: Sequence[int], samples: dict[int, int] | None, seed: int
    ) -> Job:
        """Train groups of which a worker never holds all rows.

        Args:
            address: The driver's.
            numbers: The groups.
            samples: Rows to keep of each group; None hands all batches to the user's function.
            seed: Of the samples.
        """
        from collections.abc import Iterator as Batches

        import pandas as pd

        plans = batch_plans(self._groups, numbers, samples, seed)

        def train(key: Any, batches: Any) -> Any:
            number = int(key[0])
            plain = (batch.drop(columns=_ADDED) for batch in batches)
            total, wanted, seeded = plans[number]
            if wanted is None:
                train_group(address, number, lambda: plain, streaming=True)
            else:
                train_group(address, number, lambda: sample_batches(plain, total, wanted, seeded))
            for _ in plain:
                pass  # Spark wants all of a group to be read
            yield _nothing()

        # Spark tells the form of a function from its type hints.
        train.__annotations__ = {
            "key": tuple[Any, ...],
            "batches": Batches[pd.DataFrame],
            "return": Batches[pd.DataFrame],
        }
        return self._start(train, numbers)

    def close(self) -> None:
        """Spark keeps nothing between the jobs."""

    def _start(self, function: Callable[..., Any], numbers: Sequence[int]) -> Job:
        placed = self._placed(set(numbers))
        result = placed.groupBy(_GROUP, _BIN).applyInPandas(function, "done int")
        job = SparkJob(self._spark, "headrace-groups", result.collect)
        job.start()
        return job

    def _placed(self, wanted: set[int]) -> DataFrame:
        """The wanted groups' rows, each bin in a partition of its own, sorted by group.

        Rows of a group come in an order that follows from their values, so that the same rows
        give the same model. Spark would put many small groups into one partition, by bytes.
        """
        from pyspark.sql import functions as fn

        bins = [[number for number in found if number in wanted] for found in self._bins]
        bins = [found for found in bins if found]
        table = self._placement(bins)
        by = self._source.by
        here = [
            fn.col(f"rows.{quote(name)}").eqNullSafe(fn.col(f"groups.key_{place}"))
            for place, name in enumerate(by)
        ]
        condition = here[0]
        for other in here[1:]:
            condition = condition & other
        joined = self._frame.alias("rows").join(fn.broadcast(table.alias("groups")), condition)
        placed = joined.select("rows.*", *_ADDED).repartitionById(len(bins), fn.col(_BIN))
        return placed.sortWithinPartitions(_GROUP, _BIN, self._row_hash())

    def _placement(self, bins: Sequence[Sequence[int]]) -> DataFrame:
        import pyarrow as pa

        where = [(number, place) for place, found in enumerate(bins) for number in found]
        keys = [self._groups[number].key for number, _ in where]
        columns = {
            f"key_{place}": pa.array([key[place] for key in keys], kind)
            for place, kind in enumerate(self._source.key_kinds)
        }
        columns[_GROUP] = pa.array([number for number, _ in where], pa.int32())
        columns[_BIN] = pa.array([place for _, place in where], pa.int32())
        return self._spark.createDataFrame(pa.table(columns))

    def _row_hash(self) -> Column:
        from pyspark.sql import functions as fn

        columns = []
        for child in self._source.fields:
            column = fn.col(quote(child.name))
            # Spark refuses to hash maps, and variants have no order to hash by.
            columns.append(column if _is_hashable(child.type) else fn.to_json(fn.struct(column)))
        return fn.xxhash64(*columns)

    def _row_bytes(self) -> Column:
        """Bytes of a row as pandas holds it."""
        from pyspark.sql import functions as fn

        sizes = fn.lit(0).cast("long")
        for child in self._source.fields:
            column = fn.col(quote(child.name))
            kind = child.type.name if isinstance(child.type, Primitive) else ""
            if kind in _ONE_NUMBER:
                sizes = sizes + fn.lit(NUMBER_BYTES)
            elif kind in ("string", "binary"):
                length = fn.coalesce(fn.octet_length(column), fn.lit(0))
                sizes = sizes + fn.lit(TEXT_BYTES) + length
            elif kind:
                sizes = sizes + fn.lit(OBJECT_BYTES)
            else:
                text = fn.coalesce(fn.length(fn.to_json(fn.struct(column))), fn.lit(0))
                sizes = sizes + fn.lit(OBJECT_BYTES) + text * fn.lit(NUMBER_BYTES)
        return sizes


def _is_hashable(kind: Any) -> bool:
    from headrace.delta.schema import Map, walk_types

    return not any(
        isinstance(found, Map) or (isinstance(found, Primitive) and found.name == "variant")
        for found in walk_types(kind)
    )


def _nothing() -> Any:
    import pandas as pd

    return pd.DataFrame({"done": pd.Series([], dtype="int32")})
