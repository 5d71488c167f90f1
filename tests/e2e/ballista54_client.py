# SPDX-License-Identifier: Apache-2.0
"""
Ballista 54's own client (PyPI package), run by its environment's python:

    ballista54_client.py SCHEDULER_HOST:PORT DATADIR PARTITIONS QUERY...

Each folder of DATADIR is a table. Prints one JSON object per query: rows, bytes and a hash that depends
on what is in the rows, not on their order or batches. The status is 1 when a query failed.
"""
import json
import os
import sys

import pyarrow as pa
import pyarrow.compute as pc
from ballista import BallistaSessionContext

MULTIPLIER = 0x1E3779B97F4A7C15


def hash_rows(batches):
    """A wrapping sum of row hashes, over 64 bits; integers stay themselves, anything else goes by its text."""
    total = 0
    for batch in batches:
        row = None
        for number, column in enumerate(batch.columns):
            if not pa.types.is_int64(column.type):
                column = pa.array([int.from_bytes(str(v).encode()[:7], "big") for v in column.to_pylist()], pa.int64())
            part = pc.multiply(column, MULTIPLIER + 2 * number)  # wraps
            row = part if row is None else pc.bit_wise_xor(row, part)
        row = pc.multiply(pc.bit_wise_xor(row, pc.shift_right(row, 29)), MULTIPLIER)
        low = pc.sum(pc.bit_wise_and(row, 0xFFFFFFFF)).as_py() or 0
        high = pc.sum(pc.shift_right(row, 32)).as_py() or 0
        total += low + (high << 32)
    return total % 2**64


def main():
    scheduler, data, partitions, *queries = sys.argv[1:]
    context = BallistaSessionContext(f"df://{scheduler}",
                                     cluster_config={"datafusion.execution.target_partitions": partitions})
    for entry in os.scandir(data):
        if entry.is_dir():
            context.register_parquet(entry.name, entry.path)
    for query in queries:
        try:
            batches = context.sql(query).collect()
        except Exception as error:
            print(json.dumps({"error": str(error)[:500]}), flush=True)
            os._exit(1)
        print(json.dumps({"rows": sum(b.num_rows for b in batches), "bytes": sum(b.nbytes for b in batches),
                          "hash": f"{hash_rows(batches):016x}"}), flush=True)
    os._exit(0)  # the client's threads have nothing left to do


if __name__ == "__main__":
    main()
