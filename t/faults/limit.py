#
# Copyright (C) the llm-capture authors
#
# Limits of the system that an nginx is started under: Nginx(spawn=...).

import resource

AS, FSIZE, NOFILE = (resource.RLIMIT_AS, resource.RLIMIT_FSIZE,
                     resource.RLIMIT_NOFILE)


def limited(what, value):
    return {'preexec_fn': lambda: resource.setrlimit(what, (value, value))}
