"""Examples of each command: shown in its help, in docs/reference/commands.md and in the manual.

A test parses each line.
"""

from collections.abc import Mapping

_APPLY = (
    "apply -f web.yaml --wait",
    "apply -f web.yaml -f db.yaml --wait 2m",
    "apply -f docker-compose.yml --id shop",
    "apply -f - < stack.yaml",
)

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "node list": ("node list", "node list --status NotReady -o wide", "node list --watch"),
    "node get": ("node get n1",),
    "node cordon": ("node cordon n1",),
    "node uncordon": ("node uncordon n1",),
    "node taint": ("node taint n1 gpu team=ml",),
    "node untaint": ("node untaint n1 gpu", "node untaint n1"),
    "node drain": ("node drain n1 --wait=10m", "node drain n1 --deadline 1h"),
    "node confirm-dead": ("node confirm-dead n1",),
    "node remove": ("node remove n1",),
    "federation add": (
        "federation add east --remote https://east:8551 --token-file token --remote-ca east.crt",
        "federation add west --remote https://west:8551 --token-file token --tier 2 --price 0.04",
    ),
    "federation list": ("federation list", "federation list -o json"),
    "federation get": ("federation get east",),
    "federation remove": ("federation remove east",),
    "workload apply": tuple(f"workload {line}" for line in _APPLY),
    "workload list": ("workload list", "workload list --status Failed --node n1 -o json"),
    "workload get": ("workload get web", "workload get web -o yaml"),
    "workload delete": ("workload delete web worker --wait",),
    "workload retry": ("workload retry web --wait",),
    "workload redeploy": ("workload redeploy shop --wait=5m",),
    "workload start": ("workload start web --wait",),
    "workload stop": ("workload stop web worker",),
    "cluster summary": ("cluster summary", "cluster summary --watch"),
    "cluster list": ("cluster list --api https://gateway:8551",),
    "cluster whoami": ("cluster whoami",),
    "drift list": ("drift list --node n1", "drift list --type revision_mismatch"),
    "orphans list": ("orphans list",),
    "orphans get": ("orphans get n1 web", "orphans get n1 web -o yaml"),
    "orphans adopt": ("orphans adopt n1 web", "orphans adopt n1 web --allow-secrets db-password"),
    "orphans delete": ("orphans delete n1 web",),
    "image add": (
        "image add debian-12 debian-12.qcow2 --node n1",
        "image add debian-12 https://images.example/debian-12.qcow2",
    ),
    "image list": ("image list", "image list --node n1"),
    "image remove": ("image remove debian-12",),
    "volume list": ("volume list --workload db",),
    "volume get": ("volume get db/data",),
    "volume delete": ("volume delete db/data --node n1",),
    "record list": ("record list",),
    "record get": (
        "record get /workloads/web",
        "record get /workloads/web --export web.record",
    ),
    "record delete": ("record delete /workloads/web --confirm",),
    "secret put": ("secret put db-password --from-file password.txt",),
    "secret list": ("secret list",),
    "secret delete": ("secret delete db-password",),
    "nodepool create": ("nodepool create -f pool.yaml",),
    "nodepool list": ("nodepool list",),
    "nodepool get": ("nodepool get burst",),
    "nodepool plan": ("nodepool plan burst",),
    "nodepool pause": ("nodepool pause burst",),
    "nodepool resume": ("nodepool resume burst",),
    "nodepool delete": ("nodepool delete burst",),
    "snapshot save": ("snapshot save today.snapshot",),
    "snapshot inspect": ("snapshot inspect today.snapshot",),
    "snapshot restore": ("snapshot restore today.snapshot",),
    "suggestion submit": ("suggestion submit -f suggestion.yaml",),
    "suggestion list": ("suggestion list --decision pending",),
    "suggestion approve": ("suggestion approve scale-down-17",),
    "suggestion reject": ("suggestion reject scale-down-17",),
    "recovery status": ("recovery status",),
    "recovery rebuild-from-agents": (
        "recovery rebuild-from-agents --dry-run",
        "recovery rebuild-from-agents",
        "recovery rebuild-from-agents --allow-secrets db-password,api-key",
    ),
    "recovery accept-empty": ("recovery accept-empty",),
    "token create": (
        "token create --role operator --name ann --allow read,logs --ttl 7d",
        "token create --role operator --name home --prefix home-- --ttl 365d",
        "token create --role agent --name n1 --ttl 1h",
    ),
    "token list": ("token list", "token list --kind join"),
    "token revoke": ("token revoke 4f2a91c07be35d18",),
    "certificate create": ("certificate create --role operator --name ann --ttl 24h --out ann",),
    "certificate join": ("certificate join persys-join-v1.eyJjYSI6W119 --out certificates",),
    "certificate list": ("certificate list --limit 20",),
    "certificate revoke": (
        "certificate revoke agent/n1 --reason stolen",
        "certificate revoke 4f2a91",
    ),
    "certificate audit": ("certificate audit --limit 20",),
    "context list": ("context list",),
    "context use": ("context use lab",),
    "context show": ("context show", "context show lab"),
    "context add": (
        "context add lab --scheduler 10.0.0.5:8085 --ca ca.crt --cert me.crt --key me.key",
        "context add prod --api https://gateway:8551 --cluster east --token-file token --use",
    ),
    "context remove": ("context remove lab",),
    "agent health": ("agent health --agent 10.0.0.7:50051",),
    "agent actions": ("agent actions --workload web --limit 10",),
    "agent list": ("agent list --agent 10.0.0.7:50051",),
    "agent gc": ("agent gc --dry-run",),
    "apply": _APPLY,
    "explain": ("explain web",),
    "plan": ("plan -f web.yaml",),
    "capacity": ("capacity -f web.yaml",),
    "events": ("events --since 10m --kind WorkloadFailed", "events --watch --workload web"),
    "gitops": ("gitops", "gitops -o json"),
    "audit": ("audit --limit 20",),
    "logs": ("logs web -f --tail 100", "logs shop --service api --since 5m"),
    "exec": ("exec web -- ls -l", "exec -it web -- sh"),
    "console": ("console vm1",),
    "top": ("top --sort memory", "top --once"),
    "stats": ("stats web --watch",),
    "doctor": ("doctor", "doctor --context lab -o json", "doctor --agent 127.0.0.1:50051"),
    "schema": ("schema > workload.schema.json",),
    "completion": ("completion bash > /etc/bash_completion.d/persysctl",),
    "version": ("version",),
}


def examples_of(name: str) -> tuple[str, ...]:
    return tuple(f"persysctl {line}" for line in EXAMPLES.get(name, ()))


def epilog(name: str) -> str | None:
    lines = examples_of(name)
    return "examples:\n" + "\n".join(f"  {line}" for line in lines) if lines else None
