"""Does the cost of a request grow with what there is of it all?

Workers, locations, open destinations, uploads in flight: at each point pairs
of turns, everything recorded against the same with capture off.
"""

import json
import statistics
import subprocess

import bodies
import stage
from variants import lines_of

HTTP = """
    llm_capture_path %%DIR%%/capture/all.jsonl;
    llm_capture_endpoint_pattern ^/;
    llm_capture_max_queue_bytes 256m;
    llm_capture_drain_timeout 60s;
"""

SIZE = 4096
POINTS = {'workers': (1, 2, 4, 8), 'locations': (1, 10, 100, 1000),
          'destinations': (1, 10, 100, 1000),
          'uploads': (1, 50, 500, 5000)}
SHORT_POINTS = {'workers': (1, 4), 'locations': (1, 1000),
                'destinations': (1, 1000), 'uploads': (1, 500)}


def places(n, more=''):
    """Locations /on/nNNNN and /off/nNNNN."""
    return ''.join(
        f'location /{name}/n{i:04}/ {{ proxy_pass http://back; {on} }}\n'
        for i in range(n)
        for name, on in (('on', 'llm_capture on;' + more), ('off', '')))


def server(what, n):
    if what == 'locations':
        return places(n)
    if what == 'destinations':
        return ('location ~ ^/on/(?<where>n[0-9]+)/ {'
                ' proxy_pass http://back; llm_capture on;'
                ' llm_capture_path %%DIR%%/capture/$where.jsonl; }'
                'location ~ ^/off/(?<where>n[0-9]+)/ {'
                ' proxy_pass http://back; }')
    return places(1)


class Held:
    """A load that first begins uploads and leaves them open."""

    def __init__(self, p, uri, body, seconds, held):
        _, command = stage.load_command(p.port, uri, body, seconds, held=held)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=stage.rest)
        self.held = held

    def line(self):
        text = self.process.stdout.readline()
        if not text:
            raise RuntimeError('load ended')
        return text

    def go(self):
        self.process.stdin.write('\n')
        self.process.stdin.flush()

    def end(self):
        self.line()                       # done
        self.go()
        errors = json.loads(self.line())['errors']
        self.process.wait(60)
        return errors


def turn(p, name, what, n, body, seconds):
    """Times of a turn; uploads are begun before it and ended after."""
    uri = f'/{name}/n0000/x'
    held = None
    if what == 'uploads':
        held = Held(p, uri, body, seconds, n)
        held.line()
        stage.quiet(p.children)        # until all is read
    before = stage.cpu(p.workers()), stage.cpu(p.helpers())
    if held:
        held.go()
        done = json.loads(held.line())
    else:
        done = stage.load(p.port, uri, body, seconds,
                          uris=n if what in ('locations', 'destinations')
                          else 1)
    worker = stage.cpu(p.workers()) - before[0]
    stage.quiet(p.helpers)
    count = done['requests']
    done['us'] = worker / count / 1000
    done['helper_us'] = (stage.cpu(p.helpers()) - before[1]) / count / 1000
    if held:
        done['errors'] += held.end()
        count += n
        stage.quiet(p.helpers)
    if done['errors']:
        raise RuntimeError(f'{what} {n}: {done["errors"]} errors')
    done['sent'] = count
    return done


def point(up, what, n):
    body = bodies.chat(SIZE)
    seconds = stage.quick(.4, .15)
    rounds = stage.quick(4, 2)
    with stage.Proxy(up, workers=n if what == 'workers' else 1, http=HTTP,
                     server=server(what, n), pin=what != 'workers',
                     main='worker_rlimit_nofile 16384;') as p:
        sent = 0
        turns = {'on': [], 'off': []}
        turn(p, 'off', what, n, body, seconds)
        sent += turn(p, 'on', what, n, body, seconds)['sent']
        for _ in range(rounds):
            for name in ('off', 'on'):
                turns[name].append(turn(p, name, what, n, body, seconds))
        turns['off'].append(turn(p, 'off', what, n, body, seconds))
        sent += sum(t['sent'] for t in turns['on'])
        p.close()
        rows = p.counters_all()
        found = sum(lines_of(path) for path in p.files())
    recorded = sum(r['recorded'] for r in rows)
    off = [(a['us'] + b['us']) / 2
           for a, b in zip(turns['off'], turns['off'][1:])]
    on = [t['us'] for t in turns['on']]
    return {'what': what, 'n': n, 'on_us': stage.spread(on),
            'off_us': stage.spread(off),
            'more_us': stage.spread([a - b for a, b in zip(on, off)]),
            'ratio': stage.spread([a / b for a, b in zip(on, off)]),
            'helper_us': stage.spread([t['helper_us'] for t in turns['on']]),
            'why': [] if recorded == sent == found else
            [f'sent {sent}, recorded {recorded}, lines {found}']}


def run():
    rows = []
    points = SHORT_POINTS if stage.SHORT else POINTS
    with stage.back() as up:
        for what, ns in points.items():
            for n in ns:
                row = point(up, what, n)
                rows.append(row)
                stage.say(f"growth: {n:>5} {what:<12} off "
                          f"{row['off_us']['median']:6.1f} us, more "
                          f"{row['more_us']['median']:6.2f}, helper "
                          f"{row['helper_us']['median']:6.2f} "
                          f"{', '.join(row['why'])}")
    flat = {}
    for what in points:
        mine = [r for r in rows if r['what'] == what]
        flat[what] = {
            'first_us': mine[0]['more_us']['median'],
            'last_us': mine[-1]['more_us']['median'],
            # what pairs of the same point differ by
            'noise_us': statistics.median(
                r['more_us']['max'] - r['more_us']['min'] for r in mine),
            'ratio': mine[-1]['ratio']['median'] / mine[0]['ratio']['median']}
    return {'rows': rows, 'flat': flat, 'size': SIZE}
