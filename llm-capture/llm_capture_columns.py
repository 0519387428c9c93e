import sys

try:
    import pyarrow as pa
    from pyarrow import json, parquet
except ImportError:
    sys.exit(1)

rows, out, kind = sys.argv[1:4]
schema = pa.schema([
    ('timestamp_start_unix_ms', pa.int64()), ('prompt', pa.string()),
    ('input_tokens', pa.int64()), ('output_tokens', pa.int64()),
    ('provided_session_id', pa.string()),
    ('total_hashes', pa.list_(pa.int64())), ('block_size', pa.int64()),
    ('request_canceled', pa.bool_()), ('duration_e2e_ms', pa.int64()),
    ('duration_ttft_ms', pa.int64())])
block = 1 << 20
with open(rows, 'rb') as f:
    for line in f:
        block = max(block, 2 * len(line))
batches = json.open_json(
    rows, read_options=json.ReadOptions(block_size=block),
    parse_options=json.ParseOptions(explicit_schema=schema))
writer = parquet.ParquetWriter(out, schema) if kind == '.parquet' \
    else pa.ipc.new_file(out, schema)
with writer:
    for batch in batches:
        writer.write_batch(batch.select(schema.names))
