"""The report of `simulate`: the comparison first, then each result."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction

from rules_engine.model.gpu.mig import card_share
from rules_engine.model.gpu.resources import is_gpu, short_name
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.wording import format_count, format_duration, format_names, format_percent
from rules_engine.report.values import (
    Bar,
    Block,
    Cell,
    Curve,
    Curves,
    Drawings,
    Item,
    Items,
    Lines,
    Report,
    Section,
    Span,
    Table,
    Tone,
)
from rules_engine.simulation.answer import Answer, Result
from rules_engine.simulation.drawings import COLOURS, node_drawings
from rules_engine.simulation.figures import Figures
from rules_engine.simulation.record import PodRecord, Record, State
from rules_engine.simulation.totals import PodsWith, Totals
from rules_engine.simulation.usage import waiting_time
from rules_engine.simulation.words import (
    BEGINNING,
    arrival_title,
    format_amount,
    format_gpus,
    format_request,
    pod_title,
)

MAX_PODS = 40
"""Pods that are listed one by one; of more pods, equal ones are one line."""

MAX_DRAWN = 200
"""Nodes that are drawn, of all results together."""

MAX_BARS = 4_000
"""Bars of pods in drawings, of all results together: some 700 kB. Further nodes have areas instead."""

TICKS = 4
"""Parts of the time axis."""


def simulation_report(answer: Answer, *, drawn: bool = False) -> Report:
    """Return the report of an answer. `drawn`: with drawings of nodes, which only pages show."""
    simulation, results = answer.simulation, answer.results
    options = simulation.scheduler
    played = [
        *([] if answer.several_clusters else [format_count(len(results[0].record.nodes), "node")]),
        f"seed {simulation.seed}",
        options.scoring.value,
        *([] if options.preemption else ["no preemption"]),
    ]
    several = len(results) > 1
    sections = [_comparison_section(answer)] if several else []
    notices: dict[str, None] = {}
    for name, result in zip(answer.names, results, strict=True):
        record = result.record
        parts = [*_result_sections(result, MAX_DRAWN // len(results) if drawn else 0, MAX_BARS // len(results))]
        sections += [Section(title=f"{_name_head(answer)} {name}", sections=parts)] if several else parts
        prefix = f"{name}: " if several else ""
        if record.interrupted:
            notices[f"{prefix}interrupted at {format_duration(record.ended)}: nothing after that is simulated"] = None
        notices |= dict.fromkeys(record.notices)
        for group in result.totals.not_modelled:
            notices[f"{prefix}not modelled: {group.text}, used by {_pod_names(group.pods)}"] = None
    sets = dict.fromkeys(result.record.rules for result in results)
    return Report(
        title=f"Simulation {simulation.name}: {format_duration(max(result.totals.time for result in results))}",
        about=[", ".join(played), *([] if len(sets) > 1 else [f"rules: {''.join(sets)}"])],
        sections=sections,
        notices=[*notices],
    )


def _name_head(answer: Answer) -> str:
    return "Cluster" if answer.several_clusters else "Rules"


def _comparison_section(answer: Answer) -> Section:
    if answer.interrupted:
        return Section(title="Comparison", summary="none: parts of a simulation are not comparable")
    names, best, never_ran = answer.names, answer.best, answer.never_ran
    rows = [(name, result.totals.figures) for name, result in zip(names, answer.results, strict=True)]
    blocks: list[Block] = [figures_table(_name_head(answer), rows, best, "simulation")]
    if never_ran:
        pod = never_ran[0]
        line = f"{_pod_names(never_ran)} ran in none of them. {pod_title(pod)}: {pod.message or pod.admitted.message}"
        blocks.append(Lines(lines=[Span(line, Tone.WARNING)]))
    blocks.append(Curves(curves=_card_curves(answer)))
    chosen = "; ".join(names[number] for number in best) or "none, since no pod ran"
    return Section(
        title="Comparison",
        summary=f"{'tie' if len(best) > 1 else 'best'} by {answer.by.value}: {chosen}",
        blocks=blocks,
    )


def figures_table(head: str, named: Sequence[tuple[str, Figures]], best: Collection[int], noun: str) -> Table:
    """Return a table of figures by name, with the `best` rows marked; `noun`: the word for a row."""
    rows: list[Sequence[Cell]] = []
    for number, (name, figures) in enumerate(named):
        hours = (figures.hours.given, figures.hours.lost, figures.hours.unused, figures.hours.stranded)
        mark = Span("best", Tone.GOOD) if number in best else ""
        ran = f"{figures.ran:,} of {figures.pods:,}"
        rows.append((name, ran, _mean_waiting(figures), *map(_format_hours, hours), mark))
    numbers = ("pods that ran", "mean waiting", "GPU-hours given", "lost", "unused", "stranded")
    return Table(heads=(head, *numbers, ""), rows=rows, numbers=numbers, noun=noun)


def _mean_waiting(figures: Figures) -> str:
    """Return the mean waiting time; "≥" if some pods still wait at the end."""
    if figures.never_will_run:
        return f"{figures.never_will_run:,} never run"
    if figures.waiting is None:
        return "-"
    return f"{'≥ ' if figures.never_ran else ''}{format_duration(round(figures.waiting))}"


def _card_curves(answer: Answer) -> Sequence[Curve]:
    """Return the cards in use over time in each simulation, on the scale of the largest cluster."""
    cards: list[Fraction] = []
    means: list[Sequence[Fraction]] = []
    shares = [format_percent(result.totals.figures.hours.used_share) for result in answer.results]
    for result in answer.results:
        uses = [(card_share(name) / NANOS, use) for name, use in result.totals.resources.items() if is_gpu(name)]
        cards.append(sum((share * use.capacity for share, use in uses), Fraction()))
        curves = ([share * mean for mean in use.curve] for share, use in uses)
        means.append([sum(parts, Fraction()) for parts in zip(*curves, strict=True)])
    largest = max(cards)
    return [
        Curve(
            name=name,
            means=[mean / largest for mean in used],
            capacity=1,
            end=format_duration(answer.results[0].totals.time),
            text=f"{share} of {round(float(size), 1):,g} cards on average",
        )
        for name, share, size, used in zip(answer.names, shares, cards, means, strict=True)
        if size
    ]


def _result_sections(result: Result, drawn: int, max_bars: int) -> Iterator[Section]:
    record, totals = result.record, result.totals
    states = f"{totals.pods:,}: {_state_counts(totals.states)}" if totals.pods else "none"
    waiting = [Lines(lines=[f"waiting time: {_waiting_summary(totals)}"])] if totals.pods else []
    yield Section(title="Pods", summary=states, blocks=waiting)
    if totals.fallbacks:
        rows = [
            (
                f"{short_name(fallback.requested)} → {short_name(fallback.given)}",
                f"{fallback.pods:,}",
                f"{fallback.devices:,}",
                fallback.rule,
            )
            for fallback in totals.fallbacks
        ]
        heads = ("requested → given", "pods", "devices", "rule")
        fallbacks = Table(heads=heads, rows=rows, numbers=("pods", "devices"), noun="fallback")
        yield Section(title="Fallbacks", summary=format_count(totals.fell_back, "pod"), blocks=(fallbacks,))
    if totals.denials:
        denied = [_group_item(group, Tone.BAD, "") for group in totals.denials]
        number = format_count(totals.states[State.DENIED], "pod")
        yield Section(title="Denied", summary=number, blocks=(Items(items=denied, noun="denial"),))
    if totals.pending:
        longest = [format_duration(record.ended - min(pod.arrived for pod in group.pods)) for group in totals.pending]
        waits = [
            _group_item(group, Tone.WARNING, f"{format_gpus(group.given)}, waiting for up to {time}")
            for group, time in zip(totals.pending, longest, strict=True)
        ]
        number = format_count(totals.waiting.waiting, "pod")
        yield Section(title="Waiting at the end", summary=number, blocks=(Items(items=waits, noun="message"),))
    yield Section(title="Use of resources", summary="" if totals.resources else "none", blocks=[*_use_blocks(totals)])
    if totals.figures.hours.capacity or totals.figures.hours.requested:
        yield Section(title="GPU-hours", summary=_gpu_hours_summary(totals))
    nodes = [*_node_blocks(result, drawn, max_bars)]
    yield Section(title="Nodes", summary=format_count(len(totals.nodes), "node"), blocks=nodes)
    if record.pods:
        yield Section(title="All pods", summary=format_count(len(record.pods), "pod"), blocks=(_pod_table(record),))


def _group_item(group: PodsWith, tone: Tone, line: str) -> Item:
    return Item(tone=tone, lines=[*([line] if line else []), group.text], objects=[*map(pod_title, group.pods)])


def _use_blocks(totals: Totals) -> Iterator[Block]:
    rows = [
        (
            short_name(name),
            format_amount(name, use.capacity),
            Bar(use.share),
            format_amount(name, use.peak),
            format_amount(name, use.end),
        )
        for name, use in totals.resources.items()
    ]
    heads = ("resource", "capacity", "mean", "peak", "end")
    yield Table(heads=heads, rows=rows, numbers=("capacity", "peak", "end"))
    yield Curves(
        curves=[
            Curve(
                name=short_name(name),
                means=use.curve,
                capacity=use.capacity,
                end=format_duration(totals.time),
                text=f"{format_percent(use.share)} used on average",
            )
            for name, use in totals.resources.items()
            if is_gpu(name) and use.capacity
        ]
    )


def _node_blocks(result: Result, drawn: int, max_bars: int) -> Iterator[Block]:
    record, nodes = result.record, result.totals.nodes
    shown = [node for node in nodes if any(map(is_gpu, node.resources))] or nodes
    rows: list[Sequence[Cell]] = []
    for node in shown:
        resources = [name for name in node.resources if is_gpu(name)] or list(node.resources)
        for index, name in enumerate(resources):
            use = node.resources[name]
            own = ("", "") if index else (node.node, f"{node.pods:,}")
            capacity, peak, end = (format_amount(name, level) for level in (use.capacity, use.peak, use.end))
            rows.append((*own, short_name(name), capacity, Bar(use.share), peak, end))
    heads = ("Node", "pods", "resource", "capacity", "mean", "peak", "end")
    yield Table(heads=heads, rows=rows, numbers=("pods", "capacity", "peak", "end"))
    further = [
        f"{format_duration(change.at)}: Node {change.node} becomes {change.becomes.value}" for change in record.changes
    ]
    yield Lines(lines=further, noun="change")
    if len(shown) < len(nodes):
        yield Lines(lines=[Span(f"and {format_count(len(nodes) - len(shown), 'node')} without GPUs", Tone.QUIET)])
    if drawn:
        used = sorted(shown, key=lambda node: not node.pods)[:drawn]  # idle nodes come last
        time = max(result.totals.time, 1)
        yield Drawings(
            drawings=node_drawings(result, used, max_bars),
            ticks=[format_duration(time * tick // TICKS) for tick in range(TICKS + 1)],
            legend=[*_legend_entries(result)],
            more=len(shown) - len(used),
        )


def _legend_entries(result: Result) -> Iterator[tuple[str, str]]:
    arrivals = result.record.simulation.arrivals
    for number, arrival in enumerate(arrivals[:COLOURS]):
        yield f"k{number}", arrival_title(arrival)
    if len(arrivals) > COLOURS:
        yield "", f"and {format_count(len(arrivals) - COLOURS, 'more arrival')}, in the same colours"
    if any(pod.arrival is None for pod in result.record.pods):
        yield "there", BEGINNING
    if result.totals.fell_back:
        yield "fell-back", "given another resource"


def _pod_table(record: Record) -> Table:
    if len(record.pods) <= MAX_PODS:
        return Table(
            heads=("Pod", "requests", "state", "node", "arrived", "waited"),
            rows=[
                (
                    f"{pod.namespace}/{pod.name}",
                    format_request(pod),
                    _state_text(pod),
                    pod.node,
                    format_duration(max(pod.arrived, 0)),
                    _waiting_text(pod, record),
                )
                for pod in record.pods
            ],
            numbers=("arrived", "waited"),
            noun="pod",
        )
    titles = [*map(arrival_title, record.simulation.arrivals)]
    groups: dict[tuple[int | None, str], Counter[State]] = {}
    requests: dict[tuple[int, bool], str] = {}  # pods of an arrival share what they request
    for pod in record.pods:
        key = id(pod.admitted), pod.state is State.DENIED
        text = requests[key] if key in requests else requests.setdefault(key, format_request(pod))
        groups.setdefault((pod.arrival, text), Counter())[pod.state] += 1
    return Table(
        heads=("arrival", "pods", "requests", "states"),
        rows=[
            (
                BEGINNING if arrival is None else titles[arrival],
                f"{states.total():,}",
                text,
                _state_counts({state: states[state] for state in State}),
            )
            for (arrival, text), states in groups.items()
        ],
        numbers=("pods",),
        noun="line",
    )


def _pod_names(pods: Sequence[PodRecord]) -> str:
    return format_names(pods, pod_title)


def _state_text(pod: PodRecord) -> str:
    """Return the state of a pod and the cause of its end."""
    if not pod.by:
        return pod.state.value
    return f"{pod.state.value}: {pod.by}" if pod.state is State.EVICTED else f"{pod.state.value} by {pod.by}"


def _waiting_text(pod: PodRecord, record: Record) -> str:
    """Return the time that a pod waited, or has waited at the end; "" without such a time."""
    time = record.ended - pod.arrived if pod.state is State.PENDING else waiting_time(pod)
    return "" if time is None else format_duration(time)


def _state_counts(counts: Mapping[State, int]) -> str:
    return ", ".join(f"{number:,} {state.value.lower()}" for state, number in counts.items() if number)


def _waiting_summary(totals: Totals) -> str:
    times = totals.waiting
    is_measured = times.p50 is not None and times.p95 is not None
    bound = (
        f"p50 {format_duration(times.p50 or 0)}, p95 {format_duration(times.p95 or 0)}"
        if is_measured
        else "no pod got a node"
    )
    if not times.waiting:
        return bound
    verb = "waits" if times.waiting == 1 else "wait"
    return f"{bound}; {times.waiting:,} {verb} at the end, for up to {format_duration(times.longest)}"


def _gpu_hours_summary(totals: Totals) -> str:
    hours = totals.figures.hours
    used = f" ({format_percent(hours.used_share)})" if hours.capacity else ""
    parts = [
        f"{_format_hours(hours.given)} given of {_format_hours(hours.capacity)}{used}",
        f"{_format_hours(hours.requested)} requested",
    ]
    if hours.lost:
        parts.append(f"{_format_hours(hours.lost)} lost to fallback")
    if hours.short:
        parts.append(f"{_format_hours(hours.short)} given too little")
    if hours.stranded:
        parts.append(f"{_format_hours(hours.stranded)} stranded")
    return ", ".join(parts)


def _format_hours(number: Fraction) -> str:
    """Return a number of hours, with two decimals if there are few."""
    return f"{float(number):,.2f}" if number < 100 else f"{float(number):,.0f}"
