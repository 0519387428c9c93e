#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The fields of nginx's structs that the glue reads by name.  OpenResty's
# patches, which ingress-nginx carries, move some of ngx_core_conf_t and
# ngx_http_upstream_t and leave the module signature as it is: a module that
# was built against the release loads there, and a field that moved is garbage.
#
# A field that is not in the list below makes this fail.  Before it is added:
# does a patched nginx have it at the same place?  Nothing of
# ngx_http_upstream_t; of ngx_core_conf_t what lies in front of its patches
# (master), or through ngx_http_llm_capture_core_conf(), which looks where the
# running nginx has it.
#
# One of the list moves, by a bit: ngx_event_t.cancelable.  It is set for the
# timer of "master_process off" alone, which ends by itself.

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from llmcapture import TOP, case, is_, ok                   # noqa: E402

CORE = 'ngx_core_conf_t'
FIND = 'ngx_http_llm_capture_core_conf('

ALLOWED = {
    'ngx_array_t': 'elts nelts size',
    'ngx_buf_t': 'file file_last file_pos in_file last last_buf last_in_chain '
                 'memory pos',
    'ngx_chain_t': 'buf next',
    'ngx_channel_t': 'command fd',
    'ngx_command_t': 'name offset',
    'ngx_conf_file_t': 'file line',
    'ngx_conf_t': 'args conf_file cycle log pool',
    'ngx_connection_t': 'close error fd idle log read start_time write',
    'ngx_core_conf_t': 'group master user username worker_processes',
    'ngx_cycle_t': 'conf_ctx listening log pool',
    'ngx_event_t': 'cancelable data handler log timer timer_set',
    'ngx_file_info_t': 'st_mode',            # struct stat
    'ngx_file_t': 'fd name',
    'ngx_http_compile_complex_value_t': 'cf complex_value value',
    'ngx_http_complex_value_t': 'lengths',
    'ngx_http_conf_ctx_t': 'srv_conf',
    'ngx_http_connection_t': 'conf_ctx',
    # before what any patch adds
    'ngx_http_core_loc_conf_t': 'handler',
    'ngx_http_core_main_conf_t': 'phases prefix_variables variables_hash',
    'ngx_http_core_srv_conf_t': 'merge_slashes',
    'ngx_http_headers_in_t': 'chunked content_length_n headers user_agent',
    'ngx_http_headers_out_t':
        'content_encoding content_length_n content_type content_type_len '
        'content_type_lowcase headers status',
    'ngx_http_phase_t': 'handlers',
    'ngx_http_request_t':
        'args connection err_status filter_finalize header_only headers_in '
        'headers_out http_connection internal main method pool request_body_no_buffering '
        'start_msec start_sec unparsed_uri uri uri_end uri_start '
        'valid_unparsed_uri',
    'ngx_http_variable_t': 'data flags get_handler name',
    'ngx_http_variable_value_t': 'data len no_cacheable not_found valid',
    'ngx_list_part_t': 'elts nelts next',
    'ngx_list_t': 'part',
    'ngx_listening_t': 'fd',
    'ngx_log_t': 'file next',
    'ngx_module_t': 'commands ctx_index',
    'ngx_open_file_t': 'fd name',
    'ngx_pool_cleanup_t': 'data handler next',
    'ngx_pool_t': 'cleanup',
    'ngx_process_t':
        'channel data detached exited exiting name pid proc respawn',
    'ngx_rbtree_node_t': 'key',
    'ngx_shm_t': 'addr log name size',
    'ngx_shm_zone_t': 'data init shm',
    'ngx_slab_pool_t': 'end start',
    'ngx_str_t': 'data len',
    'ngx_table_elt_t': 'hash key value',
    'ngx_time_t': 'msec sec',
}

# what a field of nginx's is, where the glue goes on through it
TYPES = {
    'ngx_buf_t.file': 'ngx_file_t',
    'ngx_command_t.name': 'ngx_str_t',
    'ngx_conf_file_t.file': 'ngx_file_t',
    'ngx_conf_t.args': 'ngx_array_t',
    'ngx_conf_t.conf_file': 'ngx_conf_file_t',
    'ngx_connection_t.read': 'ngx_event_t',
    'ngx_connection_t.write': 'ngx_event_t',
    'ngx_cycle_t.listening': 'ngx_array_t',
    'ngx_event_t.timer': 'ngx_rbtree_node_t',
    'ngx_file_t.name': 'ngx_str_t',
    'ngx_http_core_main_conf_t.phases': 'ngx_http_phase_t',
    'ngx_http_core_main_conf_t.prefix_variables': 'ngx_array_t',
    'ngx_http_headers_in_t.headers': 'ngx_list_t',
    'ngx_http_request_t.args': 'ngx_str_t',
    'ngx_http_request_t.connection': 'ngx_connection_t',
    'ngx_http_request_t.headers_in': 'ngx_http_headers_in_t',
    'ngx_http_request_t.headers_out': 'ngx_http_headers_out_t',
    'ngx_http_request_t.http_connection': 'ngx_http_connection_t',
    'ngx_http_request_t.pool': 'ngx_pool_t',
    'ngx_http_request_t.unparsed_uri': 'ngx_str_t',
    'ngx_http_request_t.uri': 'ngx_str_t',
    'ngx_http_variable_t.name': 'ngx_str_t',
    'ngx_open_file_t.name': 'ngx_str_t',
    'ngx_shm_t.name': 'ngx_str_t',
    'ngx_shm_zone_t.shm': 'ngx_shm_t',
    'ngx_table_elt_t.key': 'ngx_str_t',
    'ngx_table_elt_t.value': 'ngx_str_t',
}

GLOBALS = {'ngx_cycle': 'ngx_cycle_t', 'ngx_processes': 'ngx_process_t',
           'ngx_core_module': 'ngx_module_t',
           'ngx_http_core_module': 'ngx_module_t'}

STEP = r'(?:\[[^][]*\])?\s*(?:->|\.)\s*(\w+)'
CHAIN = re.compile(rf'(?<![\w.>])(\w+)((?:{STEP})+)')
DECLARED = re.compile(r'\b(?:const |static |struct )*(ngx_\w+_[ts])\s+'
                      r'((?:\**\w+(?:\[[^][]*\])?(?:\s*=[^,;]*)?,\s*)*'
                      r'\**\w+(?:\[[^][]*\])?)\s*(?=[;,)=:])')


def read(name):
    """Without comments, strings and what is for the preprocessor."""
    with open(f'{TOP}/{name}') as f:
        text = f.read()
    text = re.sub(r'/\*.*?\*/', ' ', text, flags=re.S)
    text = re.sub(r'"(?:\\.|[^"\\])*"', '""', text)
    return re.sub(r'^#(?:.*\\\n)*.*', '', text, flags=re.M)


def glue():
    with open(TOP + '/config') as f:
        names = re.search(r'llm_capture_glue="([^"]*)"', f.read())[1]
    return ['ngx_http_llm_capture_module.c'] + [
        f'src/ngx_http_llm_capture_{name}.c'
        for name in names.replace('\\', '').split()]


def headers():
    """All of the glue's and of the pure half's: which names what."""
    src = TOP + '/src'
    return ['src/' + name for name in sorted(os.listdir(src))
            if name.endswith('.h')]


def declared(text):
    """name -> type of the variables, parameters or fields there."""
    found = {}
    for kind, names in DECLARED.findall(text):
        for name in re.findall(r'(?:^|,)\s*\**(\w+)', names):
            found[name] = kind
    return found


def structs(texts):
    """(struct, field) -> type, for those of the module itself."""
    found = {}
    for text in texts:
        for body, name in re.findall(
                r'typedef struct(?: \w+)? \{\n(.*?)^\}\s*(\w+);', text,
                re.S | re.M):
            for field, kind in declared(body).items():
                found[f'{name}.{field}'] = kind
        for name, body in re.findall(r'^struct (\w+)_s \{\n(.*?)^\};', text,
                                     re.S | re.M):
            for field, kind in declared(body).items():
                found[f'{name}_t.{field}'] = kind
    return found


def file_level(text):
    """name -> type of the file's variables."""
    return {name: kind for line in re.findall(r'^(?:static )?\w.*;', text,
                                              re.M)
            for name, kind in declared(line).items() if '(' not in line}


def functions(text):
    """(head with parameters, body) of each."""
    return re.findall(r'^(\w+\([^;{}]*?\))\s*\n\{\n(.*?)^\}', text,
                      re.S | re.M)


def uses(text, types):
    """(type, field) of nginx's structs; type '?': say in TYPES what it is."""
    outer = {**GLOBALS, **file_level(text)}
    for head, body in functions(text):
        names = {**outer, **declared(head), **declared(body)}
        for name, chain, _ in CHAIN.findall(body):
            kind = names.get(name)
            before = ''
            for field in re.findall(STEP, chain):
                if kind is None:
                    if before:
                        yield '?', before
                    break
                own = '_llm_capture_' in kind
                if not own:
                    yield kind, field
                before = '' if own else f'{kind}.{field}'
                kind = types.get(f'{kind}.{field}')


texts = {name: read(name) for name in glue() + headers()}
types = {**TYPES, **structs(texts.values())}
found = {}

for name in glue():
    for use in uses(texts[name], types):
        found.setdefault(use, set()).add(name)

with case('fields'):
    ok(len(found) > 100, f'{len(found)} fields of nginx are used')
    is_({field: sorted(where) for (kind, field), where in found.items()
         if kind == '?'}, {},
        'it is known what each is that is gone on through (TYPES)')
    is_({f'{kind}.{field}': sorted(where)
         for (kind, field), where in found.items()
         if kind != '?' and field not in ALLOWED.get(kind, '').split()}, {},
        'each is in the list: no patched nginx moves it')
    is_(sorted(f'{kind}.{field}' for kind, fields in ALLOWED.items()
               for field in fields.split() if (kind, field) not in found), [],
        'and each of the list is used')

with case('what patches move'):
    is_([name for name in texts
         if re.search(r'\bngx_http_upstream_t\b|upstream\s*->', texts[name])],
        [], 'ngx_http_upstream_t is not looked into')

    plain = []
    for name in glue():
        for head, body in functions(texts[name]):
            fields = {f for k, f in uses(f'{head}\n{{\n{body}}}', types)
                      if k == CORE} - {'master'}
            if fields and FIND not in body:
                plain.append((name, head.split('(')[0], sorted(fields)))
    is_(plain, [], f'{CORE} is read where the running nginx has it')
