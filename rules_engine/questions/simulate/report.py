"""The report of `simulate`: the comparison first, then each result."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction

from rules_engine.accelerators.resources import card_share, is_gpu, short_name
from rules_engine.model.wording import format_count, format_hours, format_names, format_percent
from rules_engine.questions.simulate.answer import Result, SimulationAnswer, Totals
from rules_engine.questions.simulate.drawings import COLOURS, find_arrivals, node_drawings
from rules_engine.questions.simulate.figures import Figures, GpuHours
from rules_engine.questions.simulate.record import NOT_ADMITTED, State
from rules_engine.questions.simulate.words import (
    BEGINNING,
    arrival_title,
    format_amount,
    format_gpus,
    format_request,
    format_seconds,
)
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

MAX_PODS = 40
"""Pods that are listed one by one; of more pods, equal ones are one line."""

MAX_DRAWN = 200
"""Nodes that are drawn, of all results together."""

MAX_BARS = 4_000
"""Bars of pods in drawings, of all results together: some 700 kB. Further nodes have areas instead."""

TICKS = 4
"""Parts of the time axis."""


def simulation_report(answer: SimulationAnswer) -> Report:
    """Return the report of an answer."""
    results, options, (head, names) = answer.results, answer.scheduler, _names(answer)
    played = [
        *([] if head == "Cluster" else [format_count(len(results[0].nodes), "node")]),
        f"seed {answer.seed}",
        options.scoring.value,
        *([] if options.preemption else ["no preemption"]),
    ]
    several = len(results) > 1
    sections = [_comparison_section(answer)] if several else []
    notices: dict[str, None] = {}
    for name, result in zip(names, results, strict=True):
        parts = [*_result_sections(result, MAX_DRAWN // len(results), MAX_BARS // len(results))]
        sections += [Section(title=f"{head} {name}", sections=parts)] if several else parts
        prefix = f"{name}: " if several else ""
        if result.interrupted:
            at = format_seconds(result.ended_seconds)
            notices[f"{prefix}interrupted at {at}: nothing after that is simulated"] = None
        notices |= dict.fromkeys(result.notices)
        for group in result.not_modelled:
            notices[f"{prefix}not modelled: {group.what}, used by {format_names(_titles(group.pods))}"] = None
    sets = dict.fromkeys(result.rules for result in results)
    return Report(
        title=f"Simulation {answer.simulation}: {format_seconds(max(result.ended_seconds for result in results))}",
        about=[", ".join(played), *([] if len(sets) > 1 else [f"rules: {''.join(sets) or 'none'}"])],
        sections=sections,
        notices=[*notices],
    )


def _names(answer: SimulationAnswer) -> tuple[str, Sequence[str]]:
    """Return the head and the names of results: their clusters if there are several, and their rules if so."""
    clusters, sets = {each.cluster for each in answer.results}, {each.rules for each in answer.results}
    parts = [[it.cluster] * (len(clusters) > 1) + [it.rules or "(none)"] * (len(sets) > 1) for it in answer.results]
    return "Cluster" if len(clusters) > 1 else "Rules", [", rules ".join(each) for each in parts]


def _titles(pods: Sequence[str]) -> Sequence[str]:
    return [f"Pod {name}" for name in pods]


def _comparison_section(answer: SimulationAnswer) -> Section:
    comparison = answer.comparison
    if comparison is None:
        return Section(title="Comparison", summary="none: parts of a simulation are not comparable")
    (head, names), rows = _names(answer), comparison.rows
    best = [number for number, row in enumerate(rows) if row.best]
    blocks: list[Block] = [figures_table(head, [*zip(names, rows, strict=True)], best, "simulation")]
    if comparison.never_ran:
        first = next(pod for pod in answer.results[0].pods if pod.title == comparison.never_ran[0])
        pods = format_names(_titles(comparison.never_ran))
        line = f"{pods} ran in none of them. Pod {first.title}: {first.message or ''}"
        blocks.append(Lines(lines=[Span(line, Tone.WARNING)]))
    blocks.append(Curves(curves=_card_curves(answer)))
    chosen = "; ".join(names[number] for number in best) or "none, since no pod ran"
    return Section(
        title="Comparison",
        summary=f"{'tie' if len(best) > 1 else 'best'} by {comparison.by.value}: {chosen}",
        blocks=blocks,
    )


def figures_table(head: str, named: Sequence[tuple[str, Figures]], best: Collection[int], noun: str) -> Table:
    """Return a table of figures by name, with the `best` rows marked; `noun`: the word for a row."""
    rows = [
        (
            name,
            f"{each.ran:,} of {each.pods:,}",
            _mean_waiting(each),
            *map(format_hours, (hours.given, hours.lost, hours.unused, hours.stranded)),
            Span("best", Tone.GOOD) if number in best else "",
        )
        for number, (name, each) in enumerate(named)
        for hours in [each.gpu_hours]
    ]
    numbers = ("ran", "mean wait", "GPU-h given", "lost", "unused", "stranded")
    return Table(heads=(head, *numbers, ""), rows=rows, numbers=numbers, noun=noun)


def _mean_waiting(figures: Figures) -> str:
    """Return the mean waiting time; "≥" if some pods still wait at the end."""
    if figures.never_will_run:
        return f"{figures.never_will_run:,} never run"
    if figures.mean_waiting_seconds is None:
        return "-"
    return f"{'≥ ' if figures.never_ran else ''}{format_seconds(figures.mean_waiting_seconds)}"


def _card_curves(answer: SimulationAnswer) -> Sequence[Curve]:
    """Return the cards in use over time in each simulation, on the scale of the largest cluster."""
    cards: list[Fraction] = []
    means: list[Sequence[Fraction]] = []
    for result in answer.results:
        uses = [(card_share(name), use) for name, use in result.totals.resources.items() if is_gpu(name)]
        cards.append(sum((share * Fraction(use.capacity) for share, use in uses), Fraction()))
        curves = ([share * mean for mean in use.curve] for share, use in uses)
        means.append([sum(parts, Fraction()) for parts in zip(*curves, strict=True)])
    shares = [format_percent(result.totals.gpu_hours.used_share) for result in answer.results]
    largest = max(cards)
    return [
        Curve(
            name=name,
            means=[mean / largest for mean in used],
            end=format_seconds(answer.results[0].ended_seconds),
            text=f"{share} of {round(float(size), 1):,g} cards on average",
        )
        for name, share, size, used in zip(_names(answer)[1], shares, cards, means, strict=True)
        if size
    ]


def _result_sections(result: Result, drawn: int, max_bars: int) -> Iterator[Section]:
    totals = result.totals
    states = f"{totals.pods:,}: {_state_counts(totals.states)}" if totals.pods else "none"
    waiting = [Lines(lines=[f"waiting time: {_waiting_summary(totals)}"])] if totals.pods else []
    yield Section(title="Pods", summary=states, blocks=waiting)
    if result.fallbacks:
        rows = [
            (
                f"{short_name(fallback.requested)} → {short_name(fallback.given)}",
                f"{fallback.pods:,}",
                f"{fallback.devices:,}",
                fallback.rule,
            )
            for fallback in result.fallbacks
        ]
        heads = ("requested → given", "pods", "devices", "rule")
        fallbacks = Table(heads=heads, rows=rows, numbers=("pods", "devices"), noun="fallback")
        yield Section(title="Fallbacks", summary=format_count(totals.fell_back, "pod"), blocks=(fallbacks,))
    for state in filter(totals.states.get, NOT_ADMITTED):
        groups = [group for group in result.denials if (group.rule is None) is (state is State.REFUSED)]
        items = [_group_item(group.pods, Tone.BAD, group.message) for group in groups]
        number = format_count(totals.states[state], "pod")
        yield Section(title=state.value, summary=number, blocks=(Items(items=items, noun="message"),))
    if result.pending:
        waits = []
        for group in result.pending:
            given = f"{format_gpus(group.given)}, waiting for up to {format_seconds(group.longest_seconds)}"
            waits.append(_group_item(group.pods, Tone.WARNING, given, group.message))
        number = format_count(totals.waiting.at_end, "pod")
        yield Section(title="Waiting at the end", summary=number, blocks=(Items(items=waits, noun="message"),))
    yield Section(title="Use of resources", summary="" if totals.resources else "none", blocks=[*_use_blocks(result)])
    if totals.gpu_hours.capacity or totals.gpu_hours.requested:
        yield Section(title="GPU-hours", summary=_gpu_hours_summary(totals.gpu_hours))
    nodes = [*_node_blocks(result, drawn, max_bars)]
    yield Section(title="Nodes", summary=format_count(len(result.nodes), "node"), blocks=nodes)
    if result.pods:
        yield Section(title="All pods", summary=format_count(len(result.pods), "pod"), blocks=(_pod_table(result),))


def _group_item(pods: Sequence[str], tone: Tone, *lines: str) -> Item:
    return Item(tone=tone, lines=lines, objects=_titles(pods))


def _use_blocks(result: Result) -> Iterator[Block]:
    resources = result.totals.resources
    rows = [
        (
            short_name(name),
            format_amount(name, use.capacity),
            Bar(use.share),
            format_amount(name, use.peak),
            format_amount(name, use.end),
        )
        for name, use in resources.items()
    ]
    heads = ("resource", "capacity", "mean", "peak", "end")
    yield Table(heads=heads, rows=rows, numbers=("capacity", "peak", "end"))
    yield Curves(
        curves=[
            Curve(
                name=short_name(name),
                means=[mean / Fraction(use.capacity) for mean in use.curve],
                end=format_seconds(result.ended_seconds),
                text=f"{format_percent(use.share)} used on average",
            )
            for name, use in resources.items()
            if is_gpu(name) and use.capacity
        ]
    )


def _node_blocks(result: Result, drawn: int, max_bars: int) -> Iterator[Block]:
    nodes = result.nodes
    shown = [node for node in nodes if any(map(is_gpu, node.resources))] or nodes
    rows: list[Sequence[Cell]] = []
    for node in shown:
        resources = [name for name in node.resources if is_gpu(name)] or list(node.resources)
        for index, name in enumerate(resources):
            use = node.resources[name]
            own = ("", "") if index else (node.name, f"{node.pods:,}")
            capacity, peak, end = (format_amount(name, level) for level in (use.capacity, use.peak, use.end))
            rows.append((*own, short_name(name), capacity, Bar(use.share), peak, end))
    heads = ("Node", "pods", "resource", "capacity", "mean", "peak", "end")
    yield Table(heads=heads, rows=rows, numbers=("pods", "capacity", "peak", "end"))
    further = [
        f"{format_seconds(change.at_seconds)}: Node {change.node} becomes {change.becomes.value}"
        for change in result.changes
    ]
    yield Lines(lines=further, noun="change")
    if len(shown) < len(nodes):
        yield Lines(lines=[Span(f"and {format_count(len(nodes) - len(shown), 'node')} without GPUs", Tone.QUIET)])
    used = sorted(shown, key=lambda node: not node.pods)[:drawn]  # idle nodes come last
    yield Drawings(
        drawings=node_drawings(result, used, max_bars),
        ticks=[format_seconds(Fraction(result.ended_seconds) * tick / TICKS) for tick in range(TICKS + 1)],
        legend=[*_legend_entries(result)],
        more=len(shown) - len(used),
    )


def _legend_entries(result: Result) -> Iterator[tuple[str, str]]:
    arrivals = find_arrivals(result)
    for number, arrival in enumerate(arrivals[:COLOURS]):
        yield f"k{number}", arrival_title(*arrival)
    if len(arrivals) > COLOURS:
        yield "", f"and {format_count(len(arrivals) - COLOURS, 'more arrival')}, in the same colours"
    if any(pod.arrival is None for pod in result.pods):
        yield "there", BEGINNING
    if result.totals.fell_back:
        yield "fell-back", "given another resource"


def _pod_table(result: Result) -> Table:
    if len(result.pods) <= MAX_PODS:
        return Table(
            heads=("Pod", "requests", "state", "node", "arrived", "waited"),
            rows=[
                (
                    pod.title,
                    format_request(pod),
                    pod.state + (f"{':' if pod.state is State.EVICTED else ' by'} {pod.by}" if pod.by else ""),
                    pod.node or "",
                    format_seconds(max(pod.arrived_seconds, 0)),
                    "" if pod.waited_seconds is None else format_seconds(pod.waited_seconds),
                )
                for pod in result.pods
            ],
            numbers=("arrived", "waited"),
            noun="pod",
        )
    groups: dict[tuple[str, str], Counter[State]] = {}
    requests: dict[tuple[int, int, bool], str] = {}  # equal pods share their amounts
    for pod in result.pods:
        key = id(pod.requested), id(pod.given), pod.state in NOT_ADMITTED
        text = requests[key] if key in requests else requests.setdefault(key, format_request(pod))
        title = BEGINNING if pod.arrival is None else arrival_title(pod.arrival, pod.namespace)
        groups.setdefault((title, text), Counter())[pod.state] += 1
    return Table(
        heads=("arrival", "pods", "requests", "states"),
        rows=[
            (title, f"{states.total():,}", text, _state_counts({state: states[state] for state in State}))
            for (title, text), states in groups.items()
        ],
        numbers=("pods",),
        noun="line",
    )


def _state_counts(counts: Mapping[State, int]) -> str:
    return ", ".join(f"{number:,} {state.value.lower()}" for state, number in counts.items() if number)


def _waiting_summary(totals: Totals) -> str:
    times = totals.waiting
    bound = "no pod got a node"
    if times.p50_seconds is not None and times.p95_seconds is not None:
        bound = f"p50 {format_seconds(times.p50_seconds)}, p95 {format_seconds(times.p95_seconds)}"
    if not times.at_end:
        return bound
    verb = "waits" if times.at_end == 1 else "wait"
    return f"{bound}; {times.at_end:,} {verb} at the end, for up to {format_seconds(times.longest_at_end_seconds)}"


def _gpu_hours_summary(hours: GpuHours) -> str:
    used = f" ({format_percent(hours.used_share)})" if hours.capacity else ""
    parts = [
        f"{format_hours(hours.given)} given of {format_hours(hours.capacity)}{used}",
        f"{format_hours(hours.requested)} requested",
    ]
    if hours.lost:
        parts.append(f"{format_hours(hours.lost)} lost to fallback")
    if hours.short:
        parts.append(f"{format_hours(hours.short)} given too little")
    if hours.stranded:
        parts.append(f"{format_hours(hours.stranded)} stranded")
    return ", ".join(parts)
