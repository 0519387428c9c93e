"""What llm_capture_status says.

    with Upstream() as up, Nginx(up, server=STATUS, ...) as ng:
        s = status(ng)                  # checked against the schema
        samples(ask(ng, '?format=prometheus').body)
"""

import json

from llmcapture import TOP, request

STATUS = 'location = /status { llm_capture_status; }'
KIND = {'json': 'application/json',
        'prometheus': 'text/plain; version=0.0.4; charset=utf-8',
        'html': 'text/html; charset=utf-8'}


def ask(ng, args='', method='GET', **kw):
    return request(ng.port, '/status' + args, method=method, **kw)


def schema():
    with open(TOP + '/docs/status.schema.json') as f:
        return json.load(f)


def status(ng):
    """The JSON, once it is valid and both sums come out."""
    import jsonschema
    got = json.loads(ask(ng).body)
    for e in jsonschema.Draft202012Validator(schema()).iter_errors(got):
        raise AssertionError(f'{e.json_path}: {e.message}')
    for row in [got['total'], *got['destinations']] if got['capturing'] else []:
        for all_, terms in (('seen', row['requests']),
                            ('answers', row['answers'])):
            if 2 * terms[all_] != sum(terms.values()):
                raise AssertionError(f'{terms} is not {terms[all_]}')
    return got


def by_path(got, end):
    """The one destination whose path ends so."""
    found, = [d for d in got['destinations'] if d['path'].endswith(end)]
    return found


def samples(data):
    """{(name, labels as sorted pairs): value}; each once, and explained."""
    from prometheus_client.parser import text_string_to_metric_families
    text, found = data.decode(), {}
    for family in text_string_to_metric_families(text):
        if not family.documentation or family.type == 'unknown':
            raise AssertionError(f'{family.name} is not explained')
        for s in family.samples:
            key = s.name, tuple(sorted(s.labels.items()))
            if key in found:
                raise AssertionError(f'{key} twice')
            found[key] = s.value
    lines = [x for x in text.splitlines() if x and not x.startswith('#')]
    if len(lines) != len(found):
        raise AssertionError(f'{len(lines)} lines, {len(found)} samples')
    return found


CONTROL = 'location = /control { llm_capture_control; }'


def control(ng, args, method='POST', **kw):
    return request(ng.port, '/control?' + args, method=method, **kw)


def say(ng, args):
    """What holds then, which status says too."""
    answer = control(ng, args)
    if answer.status != 200:
        raise AssertionError(f'{args}: {answer.status} {answer.body}')
    got = json.loads(answer.body)
    seen = status(ng)['control']
    if seen != got:
        raise AssertionError(f'{got} is not {seen}')
    return got
