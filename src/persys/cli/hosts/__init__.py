"""`persys cluster create --hosts`: a cluster on several servers, set up over ssh.

In reading order:

- `options.py`: the options of the command
- `create.py`: the command: checks the hosts, runs the plan, writes the context of persysctl
- `inventory.py`: the hosts of the command line or of a file
- `facts.py`: what a host reports about itself, and the problems that prevent a set-up
- `plan.py`: the steps of each host, in phases: pure; `scripts.py`: the shell scripts of these steps
- `execute.py`: runs what is not done yet, all hosts of a phase at the same time
- `ssh.py`: runs one script on one host with the ssh client of the system
- `bundle.py`: the archive that is sent to each host: the wheel of this installation, or given packages
- `etcd_certificates.py`: runs on the first host: certificates of the etcd members

The units and environment files in `systemd/`, and `runtime.txt`, are those of `deploy/install`.
Called by `persys.py` only.
"""
