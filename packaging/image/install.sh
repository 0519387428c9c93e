#!/bin/sh

# In an image: nginx, if it is not there, the user and the directory.

set -eu

if ! command -v nginx > /dev/null; then
    apt-get -q update
    DEBIAN_FRONTEND=noninteractive \
        apt-get -qy install --no-install-recommends nginx
    rm -rf /var/lib/apt/lists/*
fi

# the official images have it
if ! grep -q '^[^:]*:[^:]*:101:' /etc/passwd; then
    echo 'nginx:x:101:' >> /etc/group
    echo 'nginx:x:101:101:nginx:/nonexistent:/usr/sbin/nologin' >> /etc/passwd
fi

mkdir -p /opt/nim/captures
chown 101:101 /opt/nim/captures
chmod 700 /opt/nim/captures

# it loads, with what the image has
cat > /tmp/nginx.conf <<END
load_module /usr/lib/nginx/modules/ngx_http_llm_capture_module.so;
pid /tmp/nginx.pid;
events {}
END
nginx -t -c /tmp/nginx.conf
rm -f /tmp/nginx.conf /tmp/nginx.pid
