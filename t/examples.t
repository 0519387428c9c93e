#!/usr/bin/env python3
"""What README says: examples that nginx takes, and each counter."""

import glob
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from llmcapture import (MODULE, TOP, Nginx, case, is_, ok)   # noqa: E402

with open(TOP + '/README.md', encoding='utf-8') as f:
    README = f.read()


def takes(ng, text, name):
    """The text, with nothing of this machine's own in it."""
    text = re.sub(r'load_module [^;]*;',
                  f'load_module {MODULE};' if MODULE else '', text)
    text = text.replace('/var/log/nginx/llm_capture', ng.dir + '/capture')
    text = text.replace('/var/log/nginx', ng.dir)
    text = text.replace('"/captures/', f'"{ng.dir}/capture/')
    text = re.sub(r'^events \{', 'pid %%DIR%%/nginx.pid;\nevents {', text,
                  flags=re.M)
    code, said = ng.test(conf=text)
    ok(code == 0 and '[emerg]' not in said, f'{name}: nginx takes it', said)
    bad = [line for line in said.splitlines() if 'llm' in line
           and '[warn]' in line]
    is_(bad, [], f'{name}: without a warning')


with Nginx(start=False) as ng:
    with case('examples'):
        for path in sorted(glob.glob(TOP + '/conf-examples/*.conf')):
            with open(path, encoding='utf-8') as f:
                takes(ng, f.read(), os.path.basename(path))

        blocks = re.findall(r'```nginx\n(.*?)```', README, re.S)
        ok(blocks, 'README has an example')
        for n, block in enumerate(blocks, 1):
            takes(ng, block, f'README, example {n}')

with case('the counters'):
    with open(TOP + '/src/ngx_http_llm_capture_zone.h') as f:
        names = re.findall(r'^    X\((\w+)\)', f.read(), re.M)
    ok(len(names) > 20, f'{len(names)} counters', names)
    is_([n for n in names if f'`{n}`' not in README and n not in
         ('seen', 'recorded', 'bytes', 'write_errors')], [],
        'each reason is explained')
