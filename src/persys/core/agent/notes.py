"""Notes for users about fields of a spec that are accepted but have no effect.

They are part of the workload's status, so that no value is ignored silently.
"""

from collections.abc import Iterator

from persys.model.spec import ComposeSpec, VMSpec
from persys.model.workload import Order

PROJECT_NAME = "COMPOSE_PROJECT_NAME"
NOTE = "note"  # the key in the metadata of a status


def notes_of(order: Order, project: str = "") -> Iterator[str]:
    """`project` is the name that a stack has on its node; "" if it has none yet."""
    match order.spec:
        case VMSpec() as spec:
            if spec.cloud_init_base64 and spec.cloud_init.user_data:
                yield "cloud_init is ignored: cloud_init_config.user_data is set"
        case ComposeSpec() as spec:
            if PROJECT_NAME in spec.env:
                yield f"env {PROJECT_NAME} is ignored: project_name sets the name of the project"
            named = "" if spec.project_derived else spec.project_name
            if project and named and named != project:
                yield (
                    f"project_name {named} is ignored: "
                    f"the stack uses the project {project} until it is deleted"
                )
        case _:
            return


def effective_env(spec: ComposeSpec) -> dict[str, str]:
    """The variables that a stack gets."""
    return {name: value for name, value in spec.env.items() if name != PROJECT_NAME}
