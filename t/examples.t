#!/usr/bin/env python3
"""What the documents say: examples that nginx takes, directives as they are."""

import glob
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from llmcapture import (MODULE, TOP, Nginx, case, is_, ok)   # noqa: E402

with open(TOP + '/README.md', encoding='utf-8') as f:
    README = f.read()


def section(title):
    found = re.search(rf'^### [^\n]*\b{title}\b[^\n]*\n(.*?)(?=^##)', README,
                      re.S | re.M)
    return found[1] if found else ''


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

with case('the reference'):
    with open(TOP + '/ngx_http_llm_capture_module.c') as f:
        code = f.read()

    commands = re.findall(r'\{ ngx_string\("(llm_capture\w*)"\),\s*(NGX_\w+'
                          r'(?:\s*\|\s*NGX_\w+)*)', code)
    ok(len(commands) >= 10, f'{len(commands)} directives', commands)

    for name, flags in commands:
        text = section(name)
        where = [w for flag, w in (('MAIN', 'http'), ('SRV', 'server'),
                                   ('LOC', 'location'))
                 if f'NGX_HTTP_{flag}_CONF' in flags]
        found = re.search(r'Context: +(.*)', text)
        is_(found and found[1].split(', '), where, f'{name}: context')
        ok(re.search(rf'{name}( .*)?;', text) and 'Default: ' in text,
           f'{name}: syntax and default', text)

    for name in re.findall(r'### (llm_capture\w*)', README):
        ok(name in dict(commands), f'{name} is a directive')

with case('the counters'):
    with open(TOP + '/src/ngx_http_llm_capture_zone.h') as f:
        names = re.findall(r'^    X\((\w+)\)', f.read(), re.M)
    ok(len(names) > 20, f'{len(names)} counters', names)
    is_([n for n in names if f'`{n}`' not in README and n not in
         ('seen', 'recorded', 'bytes', 'write_errors')], [],
        'each reason is explained')

with case('defaults'):
    with Nginx(start=False, path='') as ng:
        for name, _ in commands:
            if 'Default:  -' in section(name):
                continue
            line = re.search(rf'Default: +({name} .*;)', section(name))[1]
            code, said = ng.test(http=line)
            ok(code == 0, f'{line} is allowed', said)
