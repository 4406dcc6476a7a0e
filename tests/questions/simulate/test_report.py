"""Reports of simulations."""

from dataclasses import replace
from io import StringIO

from rules_engine.model.rules.simulation import SchedulerOptions, Strategy
from rules_engine.questions.simulate.answer import build_answer
from rules_engine.questions.simulate.record import Record, State
from rules_engine.questions.simulate.report import simulation_report
from rules_engine.questions.simulate.words import format_gpus
from rules_engine.report.text import MAX_ROWS, Screen
from tests.support.api import api_object
from tests.support.html_pages import missing_words, page_of
from tests.support.simulation_records import (
    GPU,
    HOUR,
    MESSAGE,
    MINUTE,
    SMALL,
    admitted_pod,
    fallen,
    record,
    recorded_node,
    recorded_pod,
    simulation,
    whole_record,
)

ONE = admitted_pod({GPU: 1})


def text(*records: Record) -> str:
    stream = StringIO()
    Screen(stream).report(simulation_report(build_answer(records)))
    return stream.getvalue()


WHOLE = """\
Simulation load: 2h
  2 nodes, seed 1, LeastAllocated
  rules: rules

Pods  8: 1 denied, 2 pending, 2 running, 1 succeeded, 1 preempted, 1 evicted
  waiting time: p50 0s, p95 1m; 2 wait at the end, for up to 1h58m

Fallbacks  2 pods
  REQUESTED → GIVEN  PODS  DEVICES  RULE
  1g.10gb → gpu         2        2  FallbackLadder/mig-80gb

Denied  1 pod
  Pod ml/greedy
    Validation/limit: no more than 8 GPUs

Waiting at the end  2 pods
  Pod ml/wait-1, Pod ml/wait-2
    4 × gpu, waiting for up to 1h58m
    0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu. preemption: 0/3 \
nodes are available: 3 Preemption is not helpful for scheduling.

Use of resources
  RESOURCE  CAPACITY  MEAN               PEAK    END
  gpu              8  ████░░░░░░  44%       7      2
  cpu             32  █░░░░░░░░░  12%  10500m  1500m
  memory       128Gi  ░░░░░░░░░░   3%    16Gi      0
  gpu  0s ▕▇▇▇▇▇▇▇▇▇▇▃▃▃▃▃▃▃▃▃▃▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▏ 2h

GPU-hours  6.97 given of 16.00 (44%), 4.42 requested, 2.54 lost to fallback

Nodes  2 nodes
  NODE  PODS  RESOURCE  CAPACITY  MEAN             PEAK  END
  a        4  gpu              4  ██████░░░░  62%     3    2
  b        1  gpu              4  ██░░░░░░░░  25%     4    0
  30m: Node b becomes Drained

All pods  8 pods
  POD         REQUESTS               STATE                      NODE  ARRIVED  WAITED
  ml/old      4 × gpu                Evicted: b became Drained  b          0s
  ml/train-1  1 × 1g.10gb → 1 × gpu  Succeeded                  a          0s      0s
  ml/train-2  1 × 1g.10gb → 1 × gpu  Running                    a          1m      1m
  ml/low      1 × gpu                Preempted by ml/high       a          0s      0s
  ml/high     1 × gpu                Running                    a          1m      0s
  ml/wait-1   4 × gpu                Pending                               2m   1h58m
  ml/wait-2   4 × gpu                Pending                               3m   1h57m
  ml/greedy   9 × gpu                Denied                                4m

  not modelled: volumes, used by Pod ml/low, Pod ml/high
"""


def test_a_record_with_everything() -> None:
    assert text(whole_record()) == WHOLE


def test_quotas_of_namespaces_with_pods_are_not_modelled() -> None:
    whole = whole_record()
    quotas = [api_object("ResourceQuota", "gpus", namespace) for namespace in ("ml", "web")]
    objects = whole.simulation.objects.with_objects({"ResourceQuota": quotas})
    shown = text(replace(whole, simulation=replace(whole.simulation, objects=objects)))
    assert shown == WHOLE.replace("\n  not modelled", "\n  not modelled: ResourceQuota ml/gpus\n  not modelled")


def test_pods_that_the_api_server_refuses_are_not_called_denied() -> None:
    whole, kind = whole_record(), admitted_pod({GPU: 1}, message="exceeded quota: gpus")
    shown = text(replace(whole, pods=(*whole.pods, recorded_pod("no", kind, state=State.REFUSED))))
    assert "9: 1 denied, 1 refused, 2 pending" in shown
    assert "Denied  1 pod\n  Pod ml/greedy\n" in shown
    assert "Refused  1 pod\n  Pod ml/no\n    exceeded quota: gpus\n" in shown


COMPARISON = """\
Comparison  best by waiting: other
  RULES     RAN    MEAN WAIT  GPU-H GIVEN  LOST  UNUSED  STRANDED
  rules  4 of 7  3 never run         6.97  2.54    9.03      0.00
  other  3 of 3          20s         4.98  2.54   11.02      0.00  best
  Pod ml/wait-1, Pod ml/wait-2, Pod ml/greedy ran in none of them. Pod ml/wait-1: 0/3 nodes are available: 1 node(s) \
had untolerated taint(s), 2 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available: 3 Preemption is not \
helpful for scheduling.
  rules  0s ▕▇▇▇▇▇▇▇▇▇▇▃▃▃▃▃▃▃▃▃▃▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▏ 2h
  other  0s ▕▆▆▆▆▆▆▆▆▆▆▂▂▂▂▂▂▂▂▂▂▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▏ 2h

Rules rules

Pods  8"""


def test_a_comparison_comes_before_the_answers() -> None:
    whole = whole_record()
    other = replace(whole, rules="other", pods=whole.pods[:4])
    shown = text(whole, other)
    assert COMPARISON in shown
    assert shown.index("Rules rules") < shown.index("Rules other")
    assert not missing_words(shown, page_of(simulation_report(build_answer([whole, other]))))


def test_results_are_named_by_what_differs() -> None:
    first = replace(whole_record(), cluster="a.yaml", notices=("same",), pods=whole_record().pods[3:4])
    clusters = [first, replace(first, cluster="b\x1b.yaml")]
    both = text(*clusters, *[replace(each, rules="other") for each in clusters])

    assert "\nComparison  tie by waiting: a.yaml; b\\x1b.yaml\n" in text(*clusters)
    assert "\n  seed 1, LeastAllocated\n  rules: rules\n" in text(*clusters)
    assert "\nCluster a.yaml\n" in text(*clusters)
    assert "\n  a.yaml, rules rules  " in both
    assert "\nCluster b\\x1b.yaml, rules other\n" in both
    assert "\n  a.yaml, rules other: not modelled: volumes" in both
    assert both.count("  same\n") == 1
    assert "\n  seed 1, LeastAllocated\n\n" in both


def test_curves_of_a_comparison_are_on_the_scale_of_the_largest_cluster() -> None:
    held = [recorded_pod("p", ONE, node="a")]
    small, large = (record([recorded_node("a", gpu=size)], held, HOUR, cluster=f"{size}") for size in (1, 4))
    cpus = record([recorded_node("a", cpu=1)], [], HOUR, cluster="cpus")

    shown = text(small, large, cpus)

    assert f"  1  0s ▕{'▂' * 40}▏ 1h\n  4  0s ▕{'▂' * 40}▏ 1h\n\n" in shown
    page = page_of(simulation_report(build_answer([small, large, cpus])))
    assert "1 100% of 1 cards on average" in page.text
    assert "▏" not in text(cpus, cpus).partition("\nRules ")[0]


def test_a_load_that_runs_nowhere_has_no_best_result() -> None:
    waits = record([recorded_node("a", gpu=1)], [recorded_pod("p", ONE, message=MESSAGE)], HOUR, cluster="a")
    shown = text(waits, replace(waits, cluster="b"))
    assert "\nComparison  best by waiting: none, since no pod ran\n" in shown
    assert f"\n  Pod ml/p ran in none of them. Pod ml/p: {MESSAGE}\n" in shown


def test_waiting_times_of_pods_that_still_wait_are_a_least_time() -> None:
    pods = [recorded_pod("ran", ONE, node="a"), recorded_pod("waits", ONE, arrived=30 * MINUTE)]
    until = record([recorded_node("a", gpu=1)], pods, HOUR, simulation=simulation(until=HOUR))
    empty = replace(until, rules="none", pods=())

    shown = text(until, empty)

    assert "\n  rules  1 of 2      ≥ 15m " in shown
    assert "\n  none   0 of 0          - " in shown


def test_parts_are_not_compared() -> None:
    part = replace(whole_record(), interrupted=True)
    shown = text(part, replace(part, rules="other"))
    assert shown.count("  rules: interrupted at 2h: nothing after that is simulated\n") == 1
    assert "\nComparison  none: parts of a simulation are not comparable\n" in shown


def test_a_simulation_without_pods() -> None:
    assert text(record([recorded_node("a", cpu=4)], [], 0)) == (
        "Simulation load: 0s\n"
        "  1 node, seed 1, LeastAllocated\n"
        "  rules: rules\n"
        "\n"
        "Pods  none\n"
        "\n"
        "Use of resources  none\n"
        "\n"
        "Nodes  1 node\n"
    )


def test_the_options_of_the_scheduler_are_shown() -> None:
    options = SchedulerOptions(scoring=Strategy.MOST_ALLOCATED, preemption=False)

    shown = text(record([recorded_node("a")], [], 0, simulation=simulation(seed=7, scheduler=options)))

    assert "  1 node, seed 7, MostAllocated, no preemption\n" in shown


def test_many_pods_are_grouped_by_arrival_and_request() -> None:
    pods = [recorded_pod(f"p-{n}", fallen() if n % 2 else ONE, arrival=0) for n in range(MAX_ROWS)]
    pods.append(recorded_pod("last", ONE, arrival=None, node="a"))

    shown = text(record([recorded_node("a", gpu=4)], pods, MINUTE))

    assert "ml/p-7" not in shown
    assert (
        "  ARRIVAL           PODS  REQUESTS               STATES\n"
        "  Pod ml/train        20  1 × gpu                20 pending\n"
        "  Pod ml/train        20  1 × 1g.10gb → 1 × gpu  20 pending\n"
        "  at the beginning     1  1 × gpu                1 running\n"
    ) in shown


def test_nodes_without_gpus_are_counted() -> None:
    shown = text(record([recorded_node("a", gpu=4), recorded_node("cpus", cpu=4)], [], MINUTE))
    assert "Nodes  2 nodes\n" in shown
    assert "  and 1 node without GPUs\n" in shown


def test_requests_are_gpus_or_all() -> None:
    assert format_gpus({SMALL: 2, "cpu": 4}) == "2 × 1g.10gb"
    assert format_gpus({"cpu": 4, "memory": 2**30}) == "4 × cpu, 1Gi × memory"
    assert format_gpus({}) == "nothing"


def test_too_little_and_much_time_is_shown() -> None:
    small = admitted_pod({GPU: 1}, {SMALL: 1})

    shown = text(record([recorded_node("a", small=7)], [recorded_pod("p", small, node="a")], 700 * HOUR))

    assert "GPU-hours  100 given of 700 (14%), 700 requested, 600 given too little\n" in shown
