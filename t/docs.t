#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# docs/directives.md has each directive as the code has it, with defaults and
# examples that nginx takes; docs/operating.md each message that asks someone
# to do something.

import glob
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from llmcapture import TOP, Nginx, case, is_, ok            # noqa: E402

WHERE = (('MAIN', 'http'), ('SRV', 'server'), ('LOC', 'location'))


def read(name):
    with open(f'{TOP}/{name}', encoding='utf-8') as f:
        return f.read()


def directives():
    """name -> contexts."""
    return {name: [word for flag, word in WHERE
                   if f'NGX_HTTP_{flag}_CONF' in flags]
            for name, flags in re.findall(
                r'\{ ngx_string\("(llm_capture\w*)"\),\s*(NGX_\w+'
                r'(?:\s*\|\s*NGX_\w+)*)',
                read('ngx_http_llm_capture_module.c'))}


def entries():
    """name -> (syntax, default, context, text)."""
    found = {}
    for name, syntax, default, context, text in re.findall(
            r'^## (llm_capture\w*)\n\n    Syntax: +([^\n]*(?:\n {8,}[^\n]*)*)\n'
            r'    Default: +([^\n]*(?:\n {8,}[^\n]*)*)\n    Context: +([^\n]*)\n'
            r'(.*?)(?=^## |\Z)', read('docs/directives.md'), re.S | re.M):
        found[name] = plain(syntax), plain(default), context.split(', '), text
    return found


def strings(text):
    """C strings beside each other, as one; those of "a ? b : c" apart."""
    text = re.sub(r'"\s*:\s*"', '"\0"', text)
    return [''.join(re.findall(r'"((?:\\.|[^"\\])*)"', part))
            .replace('\\"', '"') for part in text.split('\0')]


def messages():
    """What is logged at warn or worse, and in which file."""
    for path in sorted(glob.glob(TOP + '/src/*.c')):
        code = read(os.path.relpath(path, TOP))
        for call in re.findall(
                r'ngx_log_error\(NGX_LOG_(?:WARN|ERR|CRIT|ALERT|EMERG),'
                r'(.*?)\);', code, re.S) + re.findall(
                r'_say\((?:.*?,)?\s*LOG_(?:WARNING|ERR|CRIT|ALERT),(.*?)\);',
                code, re.S) + re.findall(
                r'\btext = ("cannot.*?);', code, re.S):
            for text in strings(call):
                # an empty one stands elsewhere; nginx -t says what it wants
                if text and ' in %s:%ui' not in text:
                    yield os.path.basename(path), text


def longest(message):
    """Its longest piece without a value."""
    return max(re.split(r'%[-*.0-9]*(?:u?[LziMOTs]|l?l?[duxVs]|[\w])',
                        message.replace('llm capture: ', '')), key=len).strip()


def plain(text):
    return re.sub(r'\s+', ' ', text)


with case('directives'):
    code, told = directives(), entries()
    ok(len(code) > 10, f'{len(code)} directives')
    is_(sorted(told), sorted(code), 'docs/directives.md has each, no others')
    listed = re.findall(r'\]\(#(llm_capture\w*)\)', read('docs/directives.md'))
    is_(sorted(set(listed)), sorted(code), 'each is in the list above')
    listed = re.findall(r'\(docs/directives\.md#(llm_capture\w*)\) \|',
                        read('README.md'))
    is_(sorted(listed), sorted(code), "and in README's table")
    for name, (syntax, default, context, text) in told.items():
        is_(context, code.get(name), f'{name}: context')
        ok(re.match(name + '[ ;]', syntax) and syntax.endswith(';'),
           f'{name}: syntax', syntax)

with case('defaults and examples'):
    with Nginx(start=False, path='') as ng:
        for name, (_, default, context, text) in told.items():
            if default != '-':
                code, said = ng.test(http=default)
                ok(code == 0, f'{default} is allowed', said)
        for n, block in enumerate(re.findall(
                r'```nginx\n(.*?)```', read('docs/directives.md'), re.S), 1):
            code, said = ng.test(http=block.replace('/var/log/nginx', ng.dir)
                                 .replace('8080', f'127.0.0.1:{ng.port + 1}'))
            ok(code == 0 and 'emerg' not in said, f'example {n}', said)

with case('messages'):
    doc = plain(read('docs/operating.md'))
    found = [(where, longest(message)) for where, message in messages()]
    ok(len(found) > 40, f'{len(found)} messages')
    is_([m for m in found if len(m[1]) < 6], [],
        'each has a piece to be known by')
    is_([m for m in found if plain(m[1]) not in doc], [],
        'docs/operating.md says what to do at each')
