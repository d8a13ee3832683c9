"""Small pipelines for the stack: one that hands over, one that never ends, one that needs a Spark worker."""

import time

from headrace import (
    TableRef,
    TaskContext,
    from_spark,
    pipeline,
    ray_task,
    spark_task,
    to_delta,
    write_table,
)


@spark_task(profile="spark")
def make_numbers(rows: int, pause_s: float = 0, *, spark) -> TableRef:
    def doubled(batches):
        import time as time_there

        for batch in batches:
            time_there.sleep(pause_s)
            yield batch

    numbers = spark.range(rows).repartition(4).mapInArrow(doubled, "id long")
    return write_table(numbers, "numbers", mode="overwrite")


@ray_task(profile="ray")
def sum_numbers(numbers: TableRef, pause_s: float = 0, *, context: TaskContext) -> dict:
    import ray

    def add(batch):
        time.sleep(pause_s)
        batch["twice"] = batch["id"] * 2
        return batch

    nodes = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    print(f"this is printed by the driver of the Ray task, which sees {len(nodes)} nodes")
    ref = to_delta(from_spark(numbers).map_batches(add), "doubled", mode="overwrite")
    return {"rows": ref.row_count, "nodes": len(nodes)}


@ray_task(profile="ray")
def wait_for_ever() -> None:
    print("waiting for ever", flush=True)
    time.sleep(3600)


@spark_task(profile="spark")
def spark_for_ever(*, spark) -> int:
    def slow(batches):
        import time as time_there

        for batch in batches:
            time_there.sleep(3600)
            yield batch

    print("waiting for ever", flush=True)
    return spark.range(1).mapInArrow(slow, "id long").count()


@pipeline
def hand_over(rows: int = 1000, spark_pause_s: float = 0, ray_pause_s: float = 0) -> dict:
    return sum_numbers(make_numbers(rows, spark_pause_s), ray_pause_s)


@pipeline
def long_ray() -> None:
    wait_for_ever()


@pipeline
def long_spark() -> None:
    spark_for_ever()
