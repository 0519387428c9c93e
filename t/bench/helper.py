"""The helper's work alone, without nginx: the drain and the writer, as linked
into the module, over a queue that is full; see drain.c.  On one processor.
"""

import json
import os
import shutil
import subprocess
import tempfile

import bodies
import stage


def measure(size, directory, records, rounds):
    where = tempfile.mkdtemp(prefix='llm-capture-drain-', dir=directory)
    try:
        done = subprocess.run(
            [stage.BUILD + '/drain', stage.body_file(bodies.chat(size)),
             str(records), str(rounds), where],
            capture_output=True, text=True, timeout=300,
            preexec_fn=lambda: os.sched_setaffinity(0, stage.CPUS[-1:]))
        if done.returncode:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout)
    finally:
        shutil.rmtree(where)


def run():
    rows = []
    for fs, directory in (('tmpfs', stage.MEMORY), ('disk', stage.BUILD)):
        for size in (4096, 65536, 1048576):
            total = stage.quick(128, 32) << 20
            records = total // size
            spent = measure(size, directory, records, stage.quick(9, 3))
            volume = records * size
            row = {'fs': fs, 'size': size, 'records': records}
            for name, values in spent.items():
                row[name] = stage.spread([volume / ns for ns in values])
            row['per_second'] = stage.spread(
                [records * 1e9 / ns for ns in spent['drain']])
            row['share'] = stage.spread(
                [w / d for d, w in zip(spent['drain'], spent['writev'])])
            rows.append(row)
            stage.say(f"helper: {fs:>5} {bodies.NAMES[size]:>6} drain "
                      f"{row['drain']['median']:5.2f} GB/s, writev "
                      f"{row['writev']['median']:5.2f}, scan "
                      f"{row['scan']['median']:5.2f}; "
                      f"{row['per_second']['median']:9.0f} records/s; "
                      f"{row['share']['median']:.0%} of writev")
    return {'rows': rows}
