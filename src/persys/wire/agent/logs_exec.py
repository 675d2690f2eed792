"""Logs and exec messages of both contracts. The fields are the same except for the format of times."""

from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2


def logs_request(request: control_pb2.LogsRequest) -> agent_pb2.LogsRequest:
    return agent_pb2.LogsRequest(
        workload_id=request.workload_id,
        service=request.service,
        follow=request.follow,
        since_unix_nanos=request.since.ToNanoseconds() if request.HasField("since") else 0,
        tail=request.tail,
        previous=request.previous,
        timestamps=request.timestamps,
    )


def log_chunk(chunk: agent_pb2.LogChunk) -> control_pb2.LogChunk:
    return control_pb2.LogChunk(data=chunk.data, stream=chunk.stream, service=chunk.service)


def exec_input(message: control_pb2.ExecInput) -> agent_pb2.ExecInput:
    return agent_pb2.ExecInput.FromString(message.SerializeToString())


def exec_output(message: agent_pb2.ExecOutput) -> control_pb2.ExecOutput:
    return control_pb2.ExecOutput.FromString(message.SerializeToString())
