#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# A new binary (USR2), and both ways back: for a while two masters, each with
# workers, a zone and a helper of its own, write to the same files.

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from life import *                          # noqa: E402,F403
from llmcapture import *                    # noqa: E402,F403


class Upgrade(Life):
    def __init__(self):
        super().__init__(daemon=True)
        self.old = self.master

    def new_binary(self):
        super().new_binary()
        self.new = self.master
        return self.helper()

    def look_at(self, master):
        self.master = master

    def no_workers(self, master):
        self.no_child(master, WORKER)

    def no_helper(self, master):
        self.no_child(master, HELPER)


with case('an upgrade'), Upgrade() as ng:
    ng.push(100)
    old_helper = ng.helper()
    ng.freeze(old_helper)
    ng.push(300)
    new_helper = ng.new_binary()
    ok(new_helper != old_helper and alive(old_helper),
       'upgrade: each master has its helper')
    ng.push(300)                        # to workers of both
    ng.signal('WINCH', ng.old)
    ng.no_workers(ng.old)
    ng.push(100)
    ng.thaw(old_helper)
    ng.no_helper(ng.old)
    ng.settled('upgrade')
    ng.signal('QUIT', ng.old)
    wait_gone(ng.old)
    ng.push(100)
    ng.settled('upgrade, the old one gone')
    is_(ng.helpers(), [new_helper], 'upgrade: the helper of the new one')


with case('a roll back by HUP'), Upgrade() as ng:
    ng.push(100)
    ng.helper()
    ng.new_binary()
    ng.signal('WINCH', ng.old)
    ng.no_workers(ng.old)
    ng.no_helper(ng.old)
    ng.push(100)
    ng.signal('HUP', ng.old)
    ng.look_at(ng.old)
    wait_for(lambda: len(ng.workers()) == 2, 'workers of the old one')
    pid = ng.helper()
    ng.push(100)
    ng.signal('QUIT', ng.new)
    wait_gone(ng.new)
    ng.push(100)
    ng.settled('roll back by HUP')
    is_(ng.helpers(), [pid], 'roll back by HUP: one helper')

    ng.allow = KILLED
    ng.signal('KILL', ng.backlog(100))
    ng.new_helper(pid)
    ng.settled('roll back by HUP, and the helper killed')


with case('a roll back with a busy worker'), Upgrade() as ng:
    # the old helper has not left when its master starts workers again, and
    # serves the same zone and generation as the one that now comes
    ng.push(10)
    held = ng.hold()
    ng.push(1)
    pid = ng.helper()
    ng.new_binary()
    ng.signal('WINCH', ng.old)
    wait_for(lambda: title(pid).endswith('shutting down'), 'WINCH to come')
    ng.signal('HUP', ng.old)
    ng.look_at(ng.old)
    wait_for(lambda: len(ng.workers()) == 2, 'workers of the old one')
    new = ng.new_helper(pid)
    ng.signal('QUIT', ng.new)
    wait_gone(ng.new)
    ng.push(100)
    ng.let_go(held)
    ng.settled('a roll back with a busy worker')
    is_(ng.helpers(), [new], 'one helper')


with case('a roll back by the end of the new one'), Upgrade() as ng:
    ng.push(100)
    ng.helper()
    ng.new_binary()
    ng.signal('WINCH', ng.old)
    ng.no_workers(ng.old)
    ng.no_helper(ng.old)
    ng.push(100)
    ng.signal('QUIT', ng.new)
    ng.look_at(ng.old)
    wait_for(lambda: len(ng.workers()) == 2, 'workers of the old one')
    wait_gone(ng.new)
    wait_for(ng.serves, 'them to serve')
    ng.helper()
    ng.push(100)
    ng.settled('roll back by the end of the new one')
