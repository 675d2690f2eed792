# etcd as Debian has it, for deploy/compose. Any other etcd from 3.4 on will do as well.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends etcd-server etcd-client \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -m 0700 /data
VOLUME /data
EXPOSE 2379 2380
CMD ["etcd", "--data-dir=/data"]
