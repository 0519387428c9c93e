#!/bin/sh

# What the image runs.  Arguments are run instead: nginx -c /my.conf, sh.
#
#     UPSTREAM            the LLM server: http://vllm:8000 or vllm:8000; with
#                         https:// its certificate is not checked
#     NIM_CAPTURE_ENABLE  1: capture.  Empty, 0, false, no, off: only serve
#     NIM_CAPTURE_ARGS    NIM's object.  Its path is to be below the volume,
#                         as its default is: /opt/nim/captures/requests.jsonl
#     LLM_CAPTURE_PATH    llm_capture_path, for a file per endpoint:
#                         /opt/nim/captures/requests.$llm_capture_endpoint.jsonl
#     LLM_CAPTURE_ROTATE  llm_capture_rotate: size=1g time=1h keep=24
#     LLM_CAPTURE_MAX_DISK    llm_capture_max_disk: 20g drop_oldest
#     PORT                8080
#     WORKERS             2, or auto
#     MAX_BODY            client_max_body_size: 64m
#
# Nothing of these can say more in nginx.conf than its own value.

set -eu

volume=/opt/nim/captures
port=${PORT:-8080}

fail() {
    echo "llm-capture: $*" >&2
    exit 64
}

# name, value, letters that it may have
only() {
    case "$2" in
        '' | *[!$3]*) fail "$1 \"$2\" is not allowed" ;;
    esac
}

health() {
    url=http://127.0.0.1:$port/llm-capture/health

    if command -v curl > /dev/null; then
        curl -fsS -o /dev/null "$url"
    elif command -v wget > /dev/null; then
        wget -q -O /dev/null "$url"
    else
        perl -MIO::Socket::INET -e '
            $s = IO::Socket::INET->new("127.0.0.1:$ARGV[0]") or die "$@\n";
            print $s "GET /llm-capture/health HTTP/1.0\r\n\r\n";
            <$s> =~ / 200 / or die "nginx does not answer\n"' "$port"
    fi
}

case "${1:-}" in
    '') ;;
    health) health; exit ;;
    *) exec "$@" ;;
esac

umask 077

upstream=${UPSTREAM:?llm-capture: UPSTREAM must name the LLM server, such as \
http://vllm:8000}
upstream=${upstream%/}

case "$upstream" in
    http://*) scheme=http server=${upstream#http://} default=80 ;;
    https://*) scheme=https server=${upstream#https://} default=443 ;;
    *) scheme=http server=$upstream default=80 ;;
esac

only UPSTREAM "$server" ']A-Za-z0-9._:[-'
only PORT "$port" '0-9'
only WORKERS "${WORKERS:=2}" '0-9a-z'
only MAX_BODY "${MAX_BODY:=64m}" '0-9kKmMgG'

host=$server

case "$server" in
    *]) server=$server:$default ;;
    *]:*) ;;
    *:*) ;;
    *) server=$server:$default ;;
esac

case "${NIM_CAPTURE_ENABLE:-}" in
    '' | 0 | false | False | FALSE | no | off) enable=off ;;
    *) enable=on ;;
esac

more=

# variable, directive, value, letters that it may have
directive() {
    if [ "$3" ]; then
        only "$1" "$3" "$4"
        more="$more$2 $3; "
    fi
}

directive LLM_CAPTURE_PATH llm_capture_path "${LLM_CAPTURE_PATH:-}" \
    'A-Za-z0-9._/$-'
directive LLM_CAPTURE_ROTATE llm_capture_rotate "${LLM_CAPTURE_ROTATE:-}" \
    'A-Za-z0-9= '
directive LLM_CAPTURE_MAX_DISK llm_capture_max_disk \
    "${LLM_CAPTURE_MAX_DISK:-}" 'A-Za-z0-9_ '

# every runtime has it in memory, when the root is read-only too.  Other
# containers of a pod see it: what is there already is not used
run=/dev/shm/llm-capture.$port
temp=$volume/.nginx
rm -rf "$run" 2> /dev/null || :

if ! mkdir "$run" 2> /dev/null; then
    run=$volume/.run
    mkdir -p "$run"
fi

# serving comes first
if ! mkdir -p "$temp"; then
    echo "llm-capture: $volume cannot be written: nothing is captured" >&2
    temp=$run
fi

printf '%s' "${NIM_CAPTURE_ARGS:-{\}}" > "$run/args.json"

sed -e "s|%%WORKERS%%|$WORKERS|" -e "s|%%PORT%%|$port|" \
    -e "s|%%MAX_BODY%%|$MAX_BODY|" -e "s|%%ENABLE%%|$enable|" \
    -e "s|%%SCHEME%%|$scheme|" -e "s|%%SERVER%%|$server|" \
    -e "s|%%HOST%%|$host|" -e "s|%%NAME%%|${host%%:*}|" \
    -e "s|%%MORE%%|$more|" -e "s|%%RUN%%|$run|" -e "s|%%TEMP%%|$temp|" \
    /usr/share/llm-capture/nginx.conf > "$run/nginx.conf"

exec nginx -e stderr -c "$run/nginx.conf"
