"""Tables by Spark with features and changes that are rarer than those of `spark_tables`."""

from __future__ import annotations

from collections.abc import Callable

from tests.delta.spark_tables import run

TABLES: dict[str, Callable] = {}


def table(make: Callable) -> Callable:
    TABLES[make.__name__] = make
    return make


@table
def mapping_dropped_again(spark, path):
    run(spark, path, "create table $t (id long, b string, c int) using delta tblproperties "
        "('delta.columnMapping.mode'='name', 'delta.enableDeletionVectors'='true')",
        "insert into $t values (1, 'x', 2), (2, 'z', 3)", "alter table $t rename column b to d",
        "delete from $t where id = 2", "alter table $t drop column c",
        "alter table $t drop feature columnMapping", "insert into $t values (3, 'y')")  # fmt: skip


@table
def compatible_with_iceberg(spark, path):
    """Partition values are in the files too, and lists have ids of their own."""
    run(spark, path, "create table $t (id long, l array<struct<x:int>>, m map<string,int>, p string, ts timestamp) "
        "using delta partitioned by (p) tblproperties ('delta.columnMapping.mode'='name', 'delta.enableIcebergCompatV2'='true')",
        "insert into $t values (1, array(named_struct('x', 1)), map('k', 1), 'p1', timestamp'2020-01-01 00:00:00')",
        "insert into $t values (2, null, null, null, null)")  # fmt: skip


@table
def texts_with_lengths(spark, path):
    run(spark, path, "create table $t (id long, c char(3), v varchar(4), s struct<c:char(3)>, l array<varchar(3)>, "
        "m map<char(2),char(3)>, p char(4)) using delta partitioned by (p)",
        "insert into $t values (1, 'a', 'b', named_struct('c', 'x'), array('y'), map('k', 'v'), 'p'), "
        "(2, null, null, null, null, null, null)")  # fmt: skip


@table
def generated_partitions(spark, path):
    run(spark, path, "create table $t (ts timestamp, y int generated always as (year(ts)), "
        "ym string generated always as (date_format(ts, 'yyyy-MM')), h timestamp generated always as (date_trunc('HOUR', ts))) "
        "using delta partitioned by (y, ym, h)", "insert into $t (ts) values (timestamp'2020-01-02 03:04:05.678'), (null), "
        "(timestamp'1900-01-02 03:04:05.678')")  # fmt: skip


@table
def columns_in_another_order(spark, path):
    run(spark, path, "create table $t (a int, b string, s struct<x:int,y:string>, c date) using delta",
        "insert into $t values (1, 'b', named_struct('x', 1, 'y', 'y'), date'2020-01-01')",
        "alter table $t alter column c first", "alter table $t alter column s.y first",
        "alter table $t add columns (s.z int first, n long after c)",
        "insert into $t select date'2021-01-01', 5L, 2, 'bb', named_struct('z', 1, 'y', 'yy', 'x', 3)")  # fmt: skip


@table
def columns_added_by_a_merge(spark, path):
    run(spark, path, "create table $t (id long, s struct<a:int>, l array<struct<a:int>>) using delta "
        "tblproperties ('delta.enableChangeDataFeed'='true')",
        "insert into $t values (1, named_struct('a', 1), array(named_struct('a', 1))), (3, null, null)",
        "merge with schema evolution into $t t using (select 1L id, named_struct('a', 2, 'b', 'x') s, "
        "array(named_struct('a', 2, 'b', 'x')) l, 5 n union all select 2L, null, null, null) s on t.id = s.id "
        "when matched then update set * when not matched then insert *")  # fmt: skip


@table
def converted_from_parquet(spark, path):
    frame = spark.range(6).selectExpr("id", "cast(id % 2 as int) p", "concat('q /%', id % 2) q")
    frame.coalesce(1).write.partitionBy("p", "q").parquet(path)
    spark.sql(f"convert to delta parquet.`{path}` partitioned by (p int, q string)")
    run(spark, path, "insert into $t values (77, 7, 'new')")
