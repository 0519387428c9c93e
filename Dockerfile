# Debian's nginx with the module:
#
#     docker build -t nginx-llm-capture .
#     docker run -p 8080:8080 -v ./my.conf:/etc/nginx/nginx.conf:ro \
#         -v captures:/var/log/nginx/llm_capture nginx-llm-capture

FROM debian:12 AS build

WORKDIR /src
COPY config config.make Makefile ngx_http_llm_capture_module.c ./
COPY misc misc
COPY src src

# make installs what it needs, once it is here itself
RUN apt-get update && apt-get install -y --no-install-recommends make \
    && make

FROM debian:12-slim

RUN apt-get update \
    && apt-get install -y --no-install-recommends nginx \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -m 700 -o www-data -g www-data /var/log/nginx/llm_capture \
    && ln -sf /dev/stdout /var/log/nginx/access.log \
    && ln -sf /dev/stderr /var/log/nginx/error.log

COPY --from=build /src/build/ngx_http_llm_capture_module.so \
                  /usr/lib/nginx/modules/
COPY conf-examples/minimal.conf /etc/nginx/nginx.conf
RUN sed -i "1i user www-data;" /etc/nginx/nginx.conf

VOLUME /var/log/nginx/llm_capture
EXPOSE 8080

# nginx writes what is queued before it leaves
STOPSIGNAL SIGQUIT
CMD ["nginx", "-g", "daemon off;"]
