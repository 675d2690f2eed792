"""A fixed set of seeds. More seeds manually: persys sim --seeds 1..1000."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEADLINE_SECONDS = 3000  # on a machine that is busy with other tests
pytestmark = pytest.mark.timeout(DEADLINE_SECONDS + 600)
SEEDS = ("1..5", "26..29", "176..179", "239..239")
SETS = ("--sets", "4", "--jobs", "3")
SET_SEEDS = ("1..3",)
MORE_SET_SEEDS = ("4..50", "51..100")
# Nodes that refuse a workload while its copy on a draining node is kept.
KEPT_SEEDS = (("50", "--nodes", "3", "--minutes", "10"),)
# A new leader that had forwarded the heartbeats of a node without Docker.
KEPT_SET_SEEDS = (("1016", "--nodes", "5", "--workloads", "6", "--minutes", "8"),)
MORE_SEEDS = ("6..25", "30..45", "180..190")


def sim(*arguments: str, cwd: Path, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "persys.cli.persys", "sim", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output for the fixed seeds. It contains the number and name of a violated promise."""
    directory = tmp_path_factory.mktemp("seeds")
    runs = [sim("--seeds", seeds, cwd=directory) for seeds in SEEDS]
    return "".join(run.stdout + run.stderr + f"exit {run.returncode}\n" for run in runs)


def test_no_seed_violates_a_promise(output: str) -> None:
    assert output.count("exit 0\n") == len(SEEDS), output


@pytest.mark.parametrize("options", KEPT_SEEDS, ids=lambda options: options[0])
def test_a_kept_seed_violates_no_promise(options: tuple[str, ...], tmp_path: Path) -> None:
    done = sim("--seed", *options, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.parametrize("seeds", MORE_SEEDS)
def test_more_seeds_violate_no_promise(seeds: str, tmp_path: Path) -> None:
    done = sim("--seeds", seeds, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


def test_promise_1_in_simulation_nothing_acknowledged_is_lost(output: str) -> None:
    assert "1 acknowledged" not in output


def test_promise_1_in_simulation_a_recovery_restores_all_known_workloads(output: str) -> None:
    assert "1 recovered" not in output


def test_promise_2_in_simulation_a_workload_that_fits_does_not_wait(output: str) -> None:
    assert (
        "8 everything ends" not in output
    )  # also reported for a workload that waits although it fits


def test_promise_3_in_simulation_no_node_is_overcommitted(output: str) -> None:
    assert "3 reservation" not in output


def test_promise_4_in_simulation_data_never_has_two_running_copies(output: str) -> None:
    assert "4 one copy of data" not in output


def test_promise_4_in_simulation_a_workload_with_stop_after_moves_only_after_it_stopped(
    output: str,
) -> None:
    assert "4 stopped alone" not in output


def test_promise_5_in_simulation_no_outage_stops_a_workload(output: str) -> None:
    assert "5 nothing stops" not in output


def test_promise_6_in_simulation_agents_restart_and_workloads_do_not(output: str) -> None:
    assert "6 no restart" not in output


def test_promise_8_in_simulation_everything_converges_without_hot_loops(output: str) -> None:
    assert "8 everything ends" not in output
    assert "8 no hot loop" not in output


def test_promise_9_in_simulation_an_idle_cluster_writes_nothing(output: str) -> None:
    assert "9 idle writes nothing" not in output


def test_promise_10_in_simulation_data_is_removed_only_by_a_delete(output: str) -> None:
    assert "10 data" not in output


def test_promise_11_in_simulation_no_error_deletes_anything(output: str) -> None:
    assert "5 nothing stops" not in output
    assert "10 data" not in output


def test_promise_11_in_simulation_an_empty_store_causes_no_deletes(output: str) -> None:
    assert "11 recovery" not in output


def test_a_removed_node_returns_only_by_registration(output: str) -> None:
    assert "removal" not in output


def test_promise_12_in_simulation_a_drained_node_is_empty(output: str) -> None:
    assert "12 drained" not in output


def test_two_clusters_keep_their_promises(tmp_path: Path) -> None:
    done = sim("--seeds", "1..2", "--remote-nodes", "2", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_two_clusters_keep_their_promises_with_many_seeds(tmp_path: Path) -> None:
    done = sim("--seeds", "3..30", "--remote-nodes", "2", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_a_cluster_with_a_node_pool_keeps_its_promises_with_many_seeds(tmp_path: Path) -> None:
    done = sim("--seeds", "7..25", "--node-pool", "3", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def set_output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output for the fixed seeds with sets and jobs."""
    directory = tmp_path_factory.mktemp("sets")
    runs = [sim("--seeds", seeds, *SETS, cwd=directory) for seeds in SET_SEEDS]
    return "".join(run.stdout + run.stderr + f"exit {run.returncode}\n" for run in runs)


def test_no_seed_with_sets_and_jobs_violates_a_promise(set_output: str) -> None:
    assert set_output.count("exit 0\n") == len(SET_SEEDS), set_output


@pytest.mark.full
@pytest.mark.parametrize("seeds", MORE_SET_SEEDS)
def test_more_seeds_with_sets_and_jobs_violate_no_promise(seeds: str, tmp_path: Path) -> None:
    done = sim("--seeds", seeds, *SETS, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.parametrize("options", KEPT_SET_SEEDS, ids=lambda options: options[0])
def test_a_kept_seed_with_sets_and_jobs_violates_no_promise(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    done = sim("--seed", *options, *SETS, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


def test_promise_14_in_simulation_a_rollout_leaves_enough_healthy_members(set_output: str) -> None:
    assert "14 availability" not in set_output


def test_promise_15_in_simulation_a_bad_revision_reaches_one_batch(set_output: str) -> None:
    assert "15 one batch" not in set_output
    assert "15 one rollback" not in set_output


def test_promise_16_in_simulation_an_occurrence_runs_at_most_once(set_output: str) -> None:
    assert "16 occurrence" not in set_output
    assert "16 at most once" not in set_output


def test_promise_17_in_simulation_rollouts_and_runs_end(set_output: str) -> None:
    assert "17 rollout ends" not in set_output
    assert "8 everything ends" not in set_output  # also reported for a rollout that does not end


def test_sets_and_a_node_pool_are_refused_together(tmp_path: Path) -> None:
    done = sim("--seed", "1", "--sets", "2", "--node-pool", "3", cwd=tmp_path)

    assert (done.returncode, done.stderr.count("expected neither")) == (2, 1)


def test_a_node_pool_and_a_remote_cluster_are_refused_together(tmp_path: Path) -> None:
    done = sim("--seed", "1", "--node-pool", "3", "--remote-nodes", "2", cwd=tmp_path)

    assert (done.returncode, done.stderr.count("expected one of them")) == (2, 1)


def test_a_large_crowded_cluster_keeps_its_promises(tmp_path: Path) -> None:
    done = sim("--seed", "1", "--nodes", "8", "--workloads", "60", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_same_seed_gives_the_same_run_in_every_process(tmp_path: Path) -> None:
    """Also with another hash seed: the command restarts itself with a fixed one."""
    first = sim("--seed", "7", "--minutes", "5", "--trace", cwd=tmp_path)
    again = sim("--seed", "7", "--minutes", "5", "--trace", cwd=tmp_path, hash_seed="random")

    assert "fingerprint" in first.stdout
    assert without_last_line(first.stdout) == without_last_line(again.stdout)


def without_last_line(text: str) -> list[str]:
    """The last line contains the elapsed time."""
    return text.splitlines()[:-1]


def test_a_successful_run_leaves_no_files(tmp_path: Path) -> None:
    run = sim("--seed", "1", "--minutes", "1", cwd=tmp_path)

    assert run.returncode == 0, run.stdout + run.stderr
    assert list(tmp_path.iterdir()) == []
