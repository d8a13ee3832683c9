"""Tables that Spark writes, one function each: what a reader of Delta has to cope with."""

from __future__ import annotations

# ruff: noqa: DTZ001 - TIMESTAMP_NTZ has no zone
import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

TABLES: dict[str, Callable] = {}

EVERY_TYPE = """id long, t_byte byte, t_short short, t_int int, t_float float, t_double double,
    t_bool boolean, t_string string, t_binary binary, t_date date, t_ts timestamp,
    t_ntz timestamp_ntz, t_dec9 decimal(9,2), t_dec18 decimal(18,4), t_dec38 decimal(38,10),
    t_char char(5), t_varchar varchar(7), t_struct struct<a:int,b:struct<c:string,d:array<long>>>,
    t_array array<struct<x:int,y:string>>, t_map map<string,struct<v:double,w:date>>,
    t_aa array<array<int>>, t_mm map<int,map<string,binary>>"""


def table(make: Callable) -> Callable:
    TABLES[make.__name__] = make
    return make


def run(spark, path, *statements):
    for statement in statements:
        spark.sql(statement.replace("$t", f"delta.`{path}`"))


def every_type_rows():
    utc = dt.UTC
    nested = {"a": 1, "b": {"c": "x", "d": [1, None, 2**62]}}
    full = (
        1, 127, -32768, 2**31 - 1, 1.5, -0.0, True, "hé\n'\"", b"\x00\xff", dt.date(2024, 2, 29),
        dt.datetime(2024, 5, 6, 7, 8, 9, 123456, utc), dt.datetime(2024, 5, 6, 7, 8, 9, 123456),
        Decimal("-1234567.89"), Decimal("99999999999999.9999"),
        Decimal("1234567890123456789012345678.0123456789"), "ab", "vc", nested,
        [{"x": 1, "y": "a"}, None, {"x": None, "y": None}], {"k": {"v": 1.0, "w": dt.date(1, 1, 1)}},
        [[1, None], None, []], {1: {"a": b"1"}, 2: None},
    )  # fmt: skip
    far = (
        2, -128, 32767, -(2**31), float("nan"), float("inf"), False, "", b"", dt.date(9999, 12, 31),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, utc), dt.datetime(1, 1, 1),
        Decimal("0.00"), Decimal("-0.0001"), Decimal("-9999999999999999999999999999.9999999999"),
        "abcde", "", {"a": None, "b": None}, [], {}, [], {},
    )  # fmt: skip
    old = (
        3, 0, 0, 0, float("-inf"), float("nan"), None, "\U0001f600" * 20, b"\x80", dt.date(1, 1, 1),
        dt.datetime(1582, 10, 15, 0, 0, 0, 0, utc), dt.datetime(1582, 10, 4, 23, 59),
        None, None, None, None, None, None, None, None, None, None,
    )  # fmt: skip
    return [full, far, old, (4, *[None] * 21)]


@table
def every_type(spark, path):
    run(spark, path, f"create table $t ({EVERY_TYPE}) using delta")
    frame = spark.createDataFrame(
        every_type_rows(),
        EVERY_TYPE.replace("char(5)", "string")
        .replace("varchar(7)", "string")
        .replace("varstring", "string"),
    )
    frame.coalesce(1).write.format("delta").mode("append").save(path)


@table
def no_rows(spark, path):
    run(spark, path, f"create table $t ({EVERY_TYPE}) using delta")


@table
def no_rows_partitioned(spark, path):
    run(spark, path, "create table $t (a int, p string, q date) using delta partitioned by (q, p)")


@table
def many_files(spark, path):
    frame = spark.range(1000).selectExpr("id", "cast(id % 7 as int) k", "concat('s', id) s")
    frame.repartition(20).write.format("delta").save(path)
    run(spark, path, "delete from $t where id < 10", "insert into $t select 5000, 1, 'x'")


@table
def zero_row_file(spark, path):
    run(spark, path, "create table $t (a int) using delta")
    spark.range(1, numPartitions=1).where("id > 5").selectExpr("cast(id as int) a").write.format(
        "delta"
    ).mode("append").save(path)
    run(spark, path, "insert into $t values (7)")


@table
def deletion_vectors(spark, path):
    run(
        spark,
        path,
        "create table $t (id long, s string) using delta "
        "tblproperties ('delta.enableDeletionVectors'='true')",
    )
    spark.range(0, 300_000, 1, 1).selectExpr("id", "concat('v', id % 97) s").write.option(
        "parquet.block.size", 256 * 1024
    ).format("delta").mode("append").save(path)
    run(spark, path, "delete from $t where id % 3 = 0", "delete from $t where id between 1000 and 250000",
        "update $t set s = 'new' where id = 250001", "delete from $t where id = 299999")  # fmt: skip


@table
def deletion_vectors_all_rows(spark, path):
    run(spark, path, "create table $t (id long, p int) using delta partitioned by (p) "
        "tblproperties ('delta.enableDeletionVectors'='true')",
        "insert into $t select id, cast(id % 2 as int) from range(0, 20, 1, 1)",
        "delete from $t where id in (1, 3)", "delete from $t where p = 1 and id > 0",
        "delete from $t where id = 4")  # fmt: skip


def mapped(mode):
    def make(spark, path):
        run(spark, path,
            "create table $t (a int, `b c` string, s struct<x:int,y:string>, arr array<struct<m:int>>, "
            "mp map<string,struct<n:int>>, p string) using delta partitioned by (p) "
            f"tblproperties ('delta.columnMapping.mode'='{mode}')",
            "insert into $t values (1, 'one', named_struct('x', 1, 'y', 'y1'), "
            "array(named_struct('m', 1)), map('k', named_struct('n', 1)), 'p 1')",
            "alter table $t rename column a to z", "alter table $t add column a string",
            "alter table $t rename column s.x to xx", "alter table $t drop column `b c`",
            "alter table $t add column `b c` double", "alter table $t rename column p to part",
            "alter table $t rename column arr.element.m to mm",
            "alter table $t add column s.x string",
            "insert into $t (z, a, s, arr, mp, part, `b c`) values (2, 'new a', "
            "named_struct('xx', 2, 'y', 'y2', 'x', 'sx'), array(named_struct('mm', 2)), "
            "map('k', named_struct('n', 2)), 'p%2F2', 2.5)")  # fmt: skip

    return make


TABLES["mapped_by_name"] = mapped("name")
TABLES["mapped_by_id"] = mapped("id")


@table
def mapped_later(spark, path):
    run(spark, path, "create table $t (a int, b string) using delta", "insert into $t values (1, 'x')",
        "alter table $t set tblproperties ('delta.columnMapping.mode'='name')",
        "alter table $t rename column a to `A.1`", "alter table $t add column a int",
        "insert into $t values (2, 'y', 3)", "delete from $t where b = 'q'")  # fmt: skip


@table
def mapped_with_deletion_vectors(spark, path):
    run(spark, path, "create table $t (a int, b string) using delta tblproperties "
        "('delta.columnMapping.mode'='name', 'delta.enableDeletionVectors'='true')",
        "insert into $t select /*+ coalesce(1) */ cast(id as int), concat('b', id) from range(100)",
        "alter table $t rename column b to bb", "delete from $t where a % 10 = 3")  # fmt: skip


NASTY = ["a b", "100%", "%2F", "a/b", "12:30", 'q"uote', "it's", "new\nline", "ünï", "\U0001f600", "",
         None, "__HIVE_DEFAULT_PARTITION__", "a=b", "#?&+", " lead", "trail ", "back\\slash", "\x01", "*[]{}^~`"]  # fmt: skip


@table
def nasty_partitions(spark, path):
    rows = [(index, value) for index, value in enumerate(NASTY)]
    frame = spark.createDataFrame(rows, "id int, p string")
    frame.coalesce(1).write.format("delta").partitionBy("p").save(path)


@table
def nasty_path(spark, path):
    target = f"{path}/a %20+b%2Fc ü"
    spark.range(5).selectExpr("id", "id % 2 k").write.format("delta").partitionBy("id").save(target)
    return target


PARTITION_TYPES = """d_byte byte, d_short short, d_int int, d_long long, d_float float, d_double double,
    d_bool boolean, d_string string, d_binary binary, d_date date, d_ts timestamp,
    d_ntz timestamp_ntz, d_dec decimal(20,3)"""


@table
def partitions_of_every_type(spark, path):
    utc = dt.UTC
    rows = [
        (1, 1, -2, 3, 2**60, 1.5, 1e300, True, "s", b"bin", dt.date(2020, 1, 2),
         dt.datetime(2020, 1, 2, 3, 4, 5, 678900, utc), dt.datetime(2020, 1, 2, 3, 4, 5, 1), Decimal("1.500")),
        (2, -128, 32767, -(2**31), -(2**63), float("nan"), float("-inf"), False, "é/%", b"\x01x", dt.date(1, 1, 1),
         dt.datetime(1, 1, 1, 0, 0, 0, 1, utc), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), Decimal("-99999999999999999.999")),
        (3, *[None] * 13),
    ]  # fmt: skip
    frame = spark.createDataFrame(rows, f"id int, {PARTITION_TYPES}")
    names = [item.split()[0] for item in PARTITION_TYPES.replace("\n", " ").split(", ")]
    frame.coalesce(1).write.format("delta").partitionBy(*[name.strip() for name in names]).save(
        path
    )


@table
def nested_evolution(spark, path):
    run(spark, path, "create table $t (id int, s struct<a:int>, arr array<struct<a:int>>, "
        "m map<string,struct<a:int>>, deep struct<l:array<struct<z:map<int,struct<q:int>>>>>) using delta",
        "insert into $t values (1, named_struct('a', 1), array(named_struct('a', 1), null), "
        "map('k', named_struct('a', 1)), named_struct('l', array(named_struct('z', map(1, named_struct('q', 1)))))), "
        "(2, null, null, null, null), (3, named_struct('a', null), array(), map(), named_struct('l', null))",
        "alter table $t add columns (s.b string, arr.element.b long, m.value.b date, deep.l.element.z.value.r string)",
        "insert into $t values (4, named_struct('a', 4, 'b', 'x'), array(named_struct('a', 4, 'b', 5L)), "
        "map('k', named_struct('a', 4, 'b', date'2020-01-01')), null)",
        "alter table $t add columns (s.n struct<u:int>, late array<int>)")  # fmt: skip


@table
def only_missing_fields(spark, path):
    run(spark, path, "create table $t (id int, s struct<a:int>) using delta "
        "tblproperties ('delta.columnMapping.mode'='name')",
        "insert into $t values (1, named_struct('a', 1)), (2, null), (3, named_struct('a', null))",
        "alter table $t add column s.b int", "alter table $t drop column s.a")  # fmt: skip


@table
def type_widening(spark, path):
    run(spark, path, "create table $t (a byte, b short, c int, d float, e decimal(5,2), f date, g int, h byte, "
        "s struct<x:byte>, arr array<short>, m map<byte,int>, i int, j short) using delta "
        "tblproperties ('delta.enableTypeWidening'='true', 'delta.feature.timestampNtz'='supported')",
        "insert into $t values (1, 2, 3, 1.1, 1.25, date'2020-02-03', 7, 8, named_struct('x', 1Y), array(1S), map(1Y, 2), 5, 6)",
        "alter table $t alter column a type int", "alter table $t alter column b type long",
        "alter table $t alter column c type double", "alter table $t alter column d type double",
        "alter table $t alter column e type decimal(12,4)", "alter table $t alter column f type timestamp_ntz",
        "alter table $t alter column g type decimal(12,2)", "alter table $t alter column h type double",
        "alter table $t alter column s.x type long", "alter table $t alter column arr.element type int",
        "alter table $t alter column m.key type int", "alter table $t alter column i type long",
        "alter table $t alter column j type decimal(12,1)",
        "insert into $t values (100000, 2, 3.5, 1.1, 1.2525, timestamp_ntz'2020-02-03 01:02:03', 7.25, 8.5, "
        "named_struct('x', 1000L), array(100000), map(70000, 2), 50000000000, 6.5)")  # fmt: skip


@table
def type_widening_of_a_partition(spark, path):
    run(spark, path, "create table $t (a int, p short) using delta partitioned by (p) "
        "tblproperties ('delta.enableTypeWidening'='true')", "insert into $t values (1, 5)",
        "alter table $t alter column p type int", "insert into $t values (2, 70000)")  # fmt: skip


def v2_checkpoint(kind):
    def make(spark, path):
        key = "spark.databricks.delta.checkpointV2.topLevelFileFormat"
        spark.conf.set(key, kind)
        run(spark, path, "create table $t (a long, p int) using delta partitioned by (p) tblproperties "
            "('delta.checkpointPolicy'='v2', 'delta.checkpointInterval'='3', 'delta.enableDeletionVectors'='true')",
            "insert into $t select id, cast(id % 3 as int) from range(0, 30, 1, 1)", "delete from $t where a = 4",
            "insert into $t values (100, 7)", "insert into $t values (101, 7)", "delete from $t where a = 100",
            "insert into $t values (102, 7)")  # fmt: skip
        spark.conf.unset(key)

    return make


TABLES["v2_checkpoint_json"] = v2_checkpoint("json")
TABLES["v2_checkpoint_parquet"] = v2_checkpoint("parquet")


@table
def classic_checkpoint(spark, path):
    run(spark, path, "create table $t (a int, d date) using delta partitioned by (d) tblproperties "
        "('delta.checkpointInterval'='4', 'delta.checkpoint.writeStatsAsStruct'='true', "
        "'delta.checkpoint.writeStatsAsJson'='false')",
        *[f"insert into $t values ({n}, date'2020-01-0{n}')" for n in range(1, 7)],
        "delete from $t where a = 2")  # fmt: skip


@table
def multipart_checkpoint(spark, path):
    spark.conf.set("spark.databricks.delta.checkpoint.partSize", "3")
    run(spark, path, "create table $t (a int) using delta tblproperties ('delta.checkpointInterval'='5')",
        *[f"insert into $t values ({n})" for n in range(6)], "delete from $t where a = 3")  # fmt: skip
    spark.conf.unset("spark.databricks.delta.checkpoint.partSize")


@table
def log_without_its_start(spark, path):
    run(spark, path, "create table $t (a int) using delta tblproperties ('delta.checkpointInterval'='3')",
        *[f"insert into $t values ({n})" for n in range(5)])  # fmt: skip
    for version in range(3):
        Path(f"{path}/_delta_log/{version:020d}.json").unlink()


@table
def shallow_clone(spark, path):
    run(spark, f"{path}/base ü", "create table $t (a int, p string) using delta partitioned by (p) "
        "tblproperties ('delta.enableDeletionVectors'='true')",
        "insert into $t select cast(id as int), concat('p ', id % 2) from range(0, 10, 1, 1)", "delete from $t where a = 2")  # fmt: skip
    spark.sql(f"create table delta.`{path}/clone` shallow clone delta.`{path}/base ü`")
    run(spark, f"{path}/clone", "insert into $t values (77, 'p%20x')", "delete from $t where a = 5")
    return f"{path}/clone"


@table
def constraints_and_generated(spark, path):
    from delta.tables import DeltaTable, IdentityGenerator

    builder = DeltaTable.create(spark).location(path)
    builder = builder.addColumn("k", "LONG", generatedAlwaysAs=IdentityGenerator())
    builder = builder.addColumn("a", "INT", nullable=False).addColumn("ts", "TIMESTAMP")
    builder = builder.addColumn("day", "DATE", generatedAlwaysAs="cast(ts as date)")
    builder.partitionedBy("day").execute()
    run(spark, path, "alter table $t add constraint c check (a > 0)",
        "insert into $t (a, ts) values (1, timestamp'2020-01-01 10:00:00'), (2, null)")  # fmt: skip


@table
def clustered(spark, path):
    run(spark, path, "create table $t (a int, b string) using delta cluster by (b) tblproperties "
        "('delta.enableRowTracking'='true')", "insert into $t select cast(id as int), concat('b', id % 3) from range(50)",
        "optimize $t", "update $t set b = 'u' where a = 3")  # fmt: skip


@table
def variants(spark, path):
    run(spark, path, "create table $t (id int, v variant, s struct<v:variant>, arr array<variant>) using delta",
        """insert into $t select 1, parse_json('{"a":1,"b":[true,null,"x"]}'), named_struct('v', parse_json('2.5')),
        array(parse_json('"t"'), null)""", "insert into $t values (2, null, null, null)")  # fmt: skip


@table
def shredded_variants(spark, path):
    spark.conf.set("spark.sql.variant.writeShredding.enabled", "true")
    spark.conf.set("spark.sql.variant.forceShreddingSchemaForTest",
                   "a int, b string, c struct<d: double, e: array<long>>, f decimal(10,2), g date, h timestamp, i boolean, j binary")  # fmt: skip
    run(
        spark,
        path,
        "create table $t (id int, v variant) using delta tblproperties ('delta.enableVariantShredding'='true')",
    )
    values = ['{"a":1,"b":"x","c":{"d":1.5,"e":[1,2]},"z":[1,{"q":null}]}', '{"a":"not int","b":null}', "5", "null",
              '{"c":{"d":"text","extra":1,"e":[1,"a",3]}}', "[1,2]", "{}", '"s"', '{"f":12.25,"i":true,"a":300000000000}']  # fmt: skip
    for index, value in enumerate(values):
        spark.sql(f"insert into delta.`{path}` select {index}, parse_json('{value}')")
    run(spark, path, "insert into $t values (99, null)",
        "insert into $t select 100, to_variant_object(named_struct('g', date'2020-01-02', 'h', timestamp'2020-01-02 03:04:05', 'j', X'0102', 'f', 1.50, 'a', 7))")  # fmt: skip
    spark.conf.unset("spark.sql.variant.writeShredding.enabled")
    spark.conf.unset("spark.sql.variant.forceShreddingSchemaForTest")


@table
def void_columns(spark, path):
    run(spark, path, "create table $t (a int, n void, s struct<a:int,n:void>) using delta",
        "insert into $t (a, s) values (1, named_struct('a', 1, 'n', null))")  # fmt: skip


@table
def legacy_calendar(spark, path):
    keys = [
        "spark.sql.parquet.datetimeRebaseModeInWrite",
        "spark.sql.parquet.int96RebaseModeInWrite",
    ]
    for key in keys:
        spark.conf.set(key, "LEGACY")
    rows = [
        ("0001-01-01",),
        ("1000-02-28",),
        ("1500-02-28",),
        ("1582-10-04",),
        ("1582-10-15",),
        ("1880-06-01",),
        ("2020-01-01",),
    ]
    run(
        spark,
        path,
        "create table $t (d date, t timestamp, s struct<d:date,t:timestamp>) using delta",
    )
    spark.createDataFrame(rows, "x string").createOrReplaceTempView("legacy_rows")
    sql = ("select cast(x as date) d, cast(concat(x, ' 01:02:03.000004') as timestamp) t, "
           "named_struct('d', cast(x as date), 't', cast(concat(x, ' 12:00:00') as timestamp)) s from legacy_rows")  # fmt: skip
    for kind in ("TIMESTAMP_MICROS", "INT96", "TIMESTAMP_MILLIS"):
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        for zone in ("UTC", "America/Los_Angeles", "Asia/Kolkata"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            spark.sql(sql).coalesce(1).write.format("delta").mode("append").save(path)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for key in [*keys, "spark.sql.parquet.outputTimestampType"]:
        spark.conf.unset(key)


@table
def legacy_parquet_format(spark, path):
    spark.conf.set("spark.sql.parquet.writeLegacyFormat", "true")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    run(spark, path, f"create table $t ({EVERY_TYPE}) using delta")
    frame = spark.createDataFrame(
        every_type_rows(),
        EVERY_TYPE.replace("char(5)", "string")
        .replace("varchar(7)", "string")
        .replace("varstring", "string"),
    )
    frame.coalesce(1).write.format("delta").mode("append").save(path)
    spark.conf.unset("spark.sql.parquet.writeLegacyFormat")
    spark.conf.unset("spark.sql.parquet.outputTimestampType")


@table
def in_commit_timestamps(spark, path):
    run(spark, path, "create table $t (a int) using delta", "insert into $t values (1)",
        "alter table $t set tblproperties ('delta.enableInCommitTimestamps'='true')",
        "insert into $t values (2)", "insert into $t values (3)")  # fmt: skip


@table
def checked_by_vacuum(spark, path):
    run(spark, path, "create table $t (a int) using delta tblproperties ('delta.feature.vacuumProtocolCheck'='supported')",
        "insert into $t values (1)")  # fmt: skip


@table
def restored_and_overwritten(spark, path):
    run(spark, path, "create table $t (a int, p int) using delta partitioned by (p)", "insert into $t values (1, 1), (2, 2)",
        "insert into $t values (3, 1)", "restore table $t to version as of 1",
        "insert overwrite $t values (9, 9)", "restore table $t to version as of 2")  # fmt: skip
    spark.range(3).selectExpr("id x", "cast(id as string) q").write.format("delta").mode("overwrite").option(
        "overwriteSchema", "true").partitionBy("q").save(path)  # fmt: skip


@table
def dotted_and_odd_names(spark, path):
    run(spark, path, "create table $t (`a.b` int, `a` struct<`b`:int, `c.d`:string>, `SELECT` int, `ü` int) using delta "
        "tblproperties ('delta.columnMapping.mode'='name')", "insert into $t values (1, named_struct('b', 2, 'c.d', 'x'), 3, 4)")  # fmt: skip
