# etcd from Debian, for deploy/compose. Any etcd 3.4 or newer works.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends etcd-server etcd-client \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -m 0700 /data
VOLUME /data
EXPOSE 2379 2380
CMD ["etcd", "--data-dir=/data"]
