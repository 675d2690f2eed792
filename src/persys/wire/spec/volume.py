"""Views of volumes in both contracts."""

from datetime import UTC, datetime

from persys.model.node import VolumeState, VolumeView
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2


def agent_view(seen: VolumeView) -> agent_pb2.VolumeView:
    return agent_pb2.VolumeView(
        workload_id=seen.workload_id,
        name=seen.name,
        driver=seen.driver,
        pool=seen.pool,
        size_bytes=seen.size_bytes,
        used_bytes=seen.used_bytes,
        state=seen.state.value,
        retain_policy="Retain" if seen.retain else "Delete",
        path=seen.path,
        fs_type=seen.fs_type,
        created_at=int(seen.created_at.timestamp()) if seen.created_at is not None else 0,
    )


def control_view(view: agent_pb2.VolumeView, node_id: str) -> control_pb2.VolumeView:
    shown = control_pb2.VolumeView(
        node_id=node_id,
        workload_id=view.workload_id,
        name=view.name,
        driver=view.driver,
        pool=view.pool,
        size_bytes=view.size_bytes,
        used_bytes=view.used_bytes,
        state=view.state or VolumeState.ATTACHED.value,
        retain_policy=view.retain_policy,
        path=view.path,
        fs_type=view.fs_type,
    )
    if view.created_at:
        shown.created_at.FromDatetime(datetime.fromtimestamp(view.created_at, tz=UTC))
    return shown
