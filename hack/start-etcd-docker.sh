#!/usr/bin/env bash
# Start etcd in Docker for development, on 127.0.0.1:2379 or PORT; its data is in the volume persys-etcd.
# IMAGE sets another image that contains etcd. If the default image cannot be pulled, one is built from the Debian
# packages of this host.
set -euo pipefail
cd "$(dirname "$0")/.."
name="${NAME:-persys-etcd}" port="${PORT:-2379}" image="${IMAGE:-quay.io/coreos/etcd:v3.5.16}"

if [[ "$(docker container inspect --format '{{.State.Running}}' "$name" 2>/dev/null)" == true ]]; then
  echo "etcd is already running in the container $name"
  exit 0
fi
if ! docker image inspect "$image" >/dev/null 2>&1 && ! docker pull --quiet "$image" >/dev/null 2>&1; then
  [[ -z ${IMAGE:-} ]] || { echo "error: cannot pull the image $image" >&2; exit 2; }
  image=persys-etcd:latest
  scripts/base-image
  docker build --quiet --network host --tag "$image" --build-arg BASE=persys-base:latest \
    --file deploy/docker/etcd.Dockerfile deploy/docker >/dev/null
fi
docker rm --force "$name" >/dev/null 2>&1 || true
docker run --detach --name "$name" --publish "127.0.0.1:$port:2379" --volume "$name:/data" "$image" \
  etcd --data-dir=/data --listen-client-urls=http://0.0.0.0:2379 --advertise-client-urls="http://127.0.0.1:$port" \
  >/dev/null
for _ in $(seq 60); do
  if docker exec "$name" etcdctl endpoint health >/dev/null 2>&1; then
    echo "etcd is listening on 127.0.0.1:$port; start a scheduler with ETCD_ENDPOINTS=127.0.0.1:$port"
    exit 0
  fi
  sleep 0.5
done
echo "error: etcd does not respond; see: docker logs $name" >&2
exit 1
