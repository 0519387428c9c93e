#!/usr/bin/env python3
"""The page of llm_capture_status as a C string: misc/page.py writes src/
ngx_http_llm_capture_page.h from misc/status.html; --print prints it instead.
"""

import os
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = TOP + '/misc/status.html'
HEADER = TOP + '/src/ngx_http_llm_capture_page.h'

BEGIN = """
/*
 * Copyright (C) the llm-capture authors
 */

/* made by misc/page.py from misc/status.html: change that */

#ifndef _NGX_HTTP_LLM_CAPTURE_PAGE_H_INCLUDED_
#define _NGX_HTTP_LLM_CAPTURE_PAGE_H_INCLUDED_


static const char  ngx_http_llm_capture_page[] =
"""

END = """;


#endif /* _NGX_HTTP_LLM_CAPTURE_PAGE_H_INCLUDED_ */
"""


def escape(byte):
    """In a C string; always three digits, as one may follow."""
    if byte == 10:
        return '\\n'
    if byte in b'\\"?':                  # ?: no trigraphs
        return '\\' + chr(byte)
    return chr(byte) if 32 <= byte < 127 else f'\\{byte:03o}'


def strings(data, width=74):
    """Lines of C, one or more for each line of the page."""
    for line in data.splitlines(keepends=True):
        out = ''
        for piece in map(escape, line.lstrip(b' ')):
            if len(out) + len(piece) > width:
                yield f'    "{out}"'
                out = ''
            out += piece
        yield f'    "{out}"'


with open(SOURCE, 'rb') as f:
    text = BEGIN + '\n'.join(strings(f.read())) + END

if sys.argv[1:] == ['--print']:
    sys.stdout.write(text)
else:
    with open(HEADER, 'w') as f:
        f.write(text)
