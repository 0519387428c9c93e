# nginx with the module, in front of one LLM server:
#
#     docker build -t llm-capture .
#     docker run -p 8080:8080 -v captures:/opt/nim/captures \
#         -e UPSTREAM=http://vllm:8000 -e NIM_CAPTURE_ENABLE=1 llm-capture
#
# packaging/image/entrypoint.sh has the variables.  It runs as uid 101 and
# needs nothing writable but the volume:
#
#     docker run --read-only --cap-drop ALL ...
#
# By default Debian 12's nginx.  Of the official images, Debian or Alpine:
#
#     docker build --build-arg BASE=nginx:1.28.0-alpine .
#
# Then the module is built from nginx's release of that version, which is
# fetched, or taken from packaging/sources/nginx-VERSION.tar.gz.  Give its
# SHA-256 as NGINX_SHA256.
#
#     docker build --target test .       # the module's unit tests, and a try
#
# TESTS names other ones, and packaging/sources may hold the wheels they need.

ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
ARG NGINX_SHA256=
WORKDIR /src
COPY . .
RUN packaging/image/build.sh own "${NGINX_SHA256}"

FROM build AS test
ARG TESTS="t/unit.t t/check/smoke.py"
RUN packaging/image/test.sh ${TESTS}

FROM ${BASE}
COPY packaging/image /usr/share/llm-capture
COPY --from=build /src/build/ngx_http_llm_capture_module.so \
                  /usr/lib/nginx/modules/
RUN /usr/share/llm-capture/install.sh

VOLUME /opt/nim/captures
EXPOSE 8080
USER 101:101

# what is queued is written before nginx leaves
STOPSIGNAL SIGQUIT

HEALTHCHECK --interval=10s --timeout=5s --start-period=5s \
    CMD ["/usr/share/llm-capture/entrypoint.sh", "health"]

ENTRYPOINT ["/usr/share/llm-capture/entrypoint.sh"]
