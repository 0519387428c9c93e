"""TAP for the tests: a line per check, an exception is a check that failed.

    from tap import ok, is_, case

    with case('a worker that dies'):
        is_(f(), 3, 'f counts to three')

Nothing is planned: the plan comes at exit, and a script that dies in between
has one failed check more and a non-zero exit code.
"""

import atexit
import os
import sys
import traceback
from contextlib import contextmanager

_state = {'run': 0, 'failed': 0, 'skip_all': False, 'pid': os.getpid()}
_found = None                           # by a trial that is under way

sys.stdout.reconfigure(line_buffering=True, errors='backslashreplace')


def _line(good, name, note=''):
    if _found is not None:
        if not good:
            _found.append(str(name))
        return
    _state['run'] += 1
    _state['failed'] += not good
    name = str(name).replace('#', '').replace('\n', ' ')
    print(f"{'' if good else 'not '}ok {_state['run']} - {name}{note}")


def diag(*lines, file=None):
    if _found is not None:
        _found.extend(f'# {line}' for line in map(str, lines))
        return
    for line in '\n'.join(map(str, lines)).splitlines():
        print('# ' + line, file=file, flush=True)


def _failed(name, *why):
    """On stderr, which prove shows."""
    diag(f'failed: {name}', *why, file=sys.stderr)


def ok(good, name, why=None):
    _line(bool(good), name)
    if not good:
        frame = sys._getframe(1)
        _failed(name, f'at {frame.f_code.co_filename}:{frame.f_lineno}',
                *([] if why is None else [_short(why)]))
    return bool(good)


def failures():
    """How many checks have failed so far."""
    return _state['failed']


@contextmanager
def trial():
    """Checks that are not told: the names of those that fail, and "# why"."""
    global _found
    _found = found = []
    try:
        yield found
    finally:
        _found = None


def _short(value, limit=1000):
    text = value if isinstance(value, str) else repr(value)
    if len(text) <= limit:
        return text
    return f'{text[:limit]}... ({len(text)} characters)'


def is_(got, want, name):
    good = got == want
    _line(good, name)
    if not good:
        frame = sys._getframe(1)
        _failed(name, f'at {frame.f_code.co_filename}:{frame.f_lineno}',
                ' got: ' + _short(got), 'want: ' + _short(want))
    return good


def like(text, pattern, name):
    import re
    return ok(re.search(pattern, text), name, f'{pattern!r} not in: {text}')


def skip(name, reason):
    _line(True, name, f' # SKIP {reason}')


def skip_all(reason):
    print(f'1..0 # SKIP {reason}')
    _state['skip_all'] = True
    sys.exit(0)


@contextmanager
def case(name):
    """Checks of one subject; the script goes on after an exception in it."""
    diag(name)
    try:
        yield
    except Exception:
        _line(False, f'{name}: no exception')
        _failed(name, traceback.format_exc())


def _excepthook(kind, value, tb):
    _line(False, f'no exception: {kind.__name__}')
    _failed('no exception',
            ''.join(traceback.format_exception(kind, value, tb)))


def _end():
    if os.getpid() != _state['pid'] or _state['skip_all']:
        return
    if _state['run'] == 0:
        _line(False, 'at least one check')
    print(f"1..{_state['run']}", flush=True)
    if _state['failed']:
        diag(f"{_state['failed']} of {_state['run']} failed")
        os._exit(1)


sys.excepthook = _excepthook
atexit.register(_end)
