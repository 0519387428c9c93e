"""The strict scan against parsers of JSON, on bodies of several kinds."""

import json
import os
import subprocess

import bodies
import stage

SIZES = (4096, 16384, 65536, 1048576)


def run():
    files = {}
    for kind, make in bodies.KINDS.items():
        for size in stage.quick(SIZES, (4096, 65536)):
            files[stage.body_file(make(size))] = kind
    done = subprocess.run(
        [stage.BUILD + '/scan', str(stage.quick(9, 2)), *files],
        capture_output=True, text=True, timeout=900,
        preexec_fn=lambda: os.sched_setaffinity(0, stage.CPUS[-1:]))
    if done.returncode:
        raise RuntimeError(done.stderr)
    head, *lines = map(json.loads, done.stdout.splitlines())
    cells = {}
    for line in lines:
        cell = cells.setdefault((files[line['file']], line['bytes']),
                                {'kind': files[line['file']],
                                 'size': line['bytes'], 'speed': {}})
        cell['speed'][line['parser']] = line['speed']
    rows = []
    for cell in cells.values():
        speed = cell['speed']
        cell['ratio'] = stage.spread([
            a / b for a, b in zip(speed['scan'], speed['simdjson'])])
        cell['refused'] = [k for k, v in speed.items() if min(v) < 0]
        cell['speed'] = {k: stage.spread(v) for k, v in speed.items()}
        rows.append(cell)
        stage.say(f"parse: {cell['kind']:>14} {bodies.NAMES[cell['size']]:>6} "
                  + ' '.join(f"{k} {v['median']:.2f}"
                             for k, v in cell['speed'].items())
                  + f"  ratio {cell['ratio']['median']:.2f} "
                  + ', '.join(cell['refused']))
    return {'kernels': head, 'rows': rows}
