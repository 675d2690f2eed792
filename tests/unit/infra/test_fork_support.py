"""Programs that an agent starts do not crash in gRPC between fork and exec."""

import os
import subprocess
import sys


def test_the_fork_handlers_of_grpc_are_off_before_it_is_imported() -> None:
    environ = {k: v for k, v in os.environ.items() if k != "GRPC_ENABLE_FORK_SUPPORT"}
    code = "import sys, persys, os; print('grpc' in sys.modules, os.environ['GRPC_ENABLE_FORK_SUPPORT'])"

    result = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )

    assert result.stdout == "False false\n"
