"""Logs and exec between the two contracts: the same fields in both, but for how a time is written."""

from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2


def logs_request(asked: control_pb2.LogsRequest) -> agent_pb2.LogsRequest:
    return agent_pb2.LogsRequest(
        workload_id=asked.workload_id,
        service=asked.service,
        follow=asked.follow,
        since_unix_nanos=asked.since.ToNanoseconds() if asked.HasField("since") else 0,
        tail=asked.tail,
        previous=asked.previous,
        timestamps=asked.timestamps,
    )


def log_chunk(chunk: agent_pb2.LogChunk) -> control_pb2.LogChunk:
    return control_pb2.LogChunk(data=chunk.data, stream=chunk.stream, service=chunk.service)


def exec_input(said: control_pb2.ExecInput) -> agent_pb2.ExecInput:
    return agent_pb2.ExecInput.FromString(said.SerializeToString())


def exec_output(said: agent_pb2.ExecOutput) -> control_pb2.ExecOutput:
    return control_pb2.ExecOutput.FromString(said.SerializeToString())
