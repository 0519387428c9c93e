"""What a module's shared object shows and needs."""

import re
import subprocess

from tap import is_, ok


def _said(*command):
    return subprocess.run(command, text=True, check=True,
                          stdout=subprocess.PIPE).stdout


def names(path, *options):
    return {line.split()[-1].split('@')[0]
            for line in _said('nm', '-D', *options, path).splitlines()}


def check_so(path, what):
    # _init and _fini: of musl's start files
    is_(names(path, '--defined-only') - {'_init', '_fini'},
        {'ngx_modules', 'ngx_module_names', 'ngx_module_order'},
        f'{what}: shows what nginx asks for, nothing else')

    # ZSTD_trace_*: weak, of nobody
    is_([n for n in names(path, '-u') if n.startswith('ngx_http_llm_capture')
         or n.startswith(('pcre2_', 'json_', 'SHA256', 'deflate', 'ZSTD_'))
         and not n.startswith('ZSTD_trace_') or n == '__wrap_stdin'], [],
        f'{what}: no open end of our own')

    text = _said('readelf', '-dW', path)
    needs = re.findall(r'\(NEEDED\).*\[(.*?)\]', text)
    is_([n for n in needs if not re.match(r'libc\.|ld-linux', n)], [],
        f'{what}: needs only libc')
    ok(re.search(r'\bNOW\b|BIND_NOW', text),
       f'{what}: an open end shows when it is loaded', text)
    ok('TEXTREL' not in text, f'{what}: no text relocations')
