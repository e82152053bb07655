#!/usr/bin/env python3
#===- optima.py - Exact choices against HiGHS -------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What plait says it has chosen exactly, against an integer programme solved by
HiGHS (Huangfu and Hall 2018): how tp splits the ops of a model, and where it is
cut into stages. Small models are drawn, in the nn dialect and of the families of
Hugging Face, with meshes, schedules and rates of a cluster; the passes write down
what they have solved and their answer. A programme is made of the problem alone.

Then costs and answers are changed: the comparison has to find each of them out."""

import copy
import dataclasses
import itertools
import json
import math
import pathlib
import random
import sys
import tempfile

import highspy
import numpy

from fuzz.families import draw_config, get_heads
from fuzz.graph import to_text
from fuzz.layout import Layout
from fuzz.models import draw_graph
from harness import Failure, Reporter, Tools, arguments, require

DRAWS = 50
# Problems in which each change is made.
CHANGED = 4
# Seconds for a case, some ten times what the longest takes on a busy machine.
LIMIT = 100
# A plan's cost is a sum of some thousand doubles, and its value is the same sum in
# another order.
ROUNDING = 1e-11
# HiGHS stops where no reduced cost is below -1e-7 of costs that are scaled to
# about 1: of two choices that are as near it may take either.
SOLVER = 1e-6
# The bisection of the cut by stages ends at a part in a million.
CUT = 1e-6


#===-----------------------------------------------------------------------===#
# Integer programmes
#===-----------------------------------------------------------------------===#


class Programme:
    """Variables from 0 to 1 with costs, and rows of coefficients with bounds."""

    def __init__(self):
        self.columns: list[tuple[float, float, bool]] = []  # cost, most, integer
        self.rows: list[tuple[float, float, dict[int, float]]] = []

    def add(self, cost: float = 0.0, most: float = 1.0, integer=True) -> int:
        self.columns.append((cost, most, integer))
        return len(self.columns) - 1

    def require(self, least: float, most: float, row: dict[int, float]) -> None:
        self.rows.append((least, most, row))

    def solve(self) -> tuple[list[float], float]:
        """The variables of a cheapest solution, and below what none is."""
        lp = highspy.HighsLp()
        cost, most, integer = zip(*self.columns)
        lp.num_col_, lp.num_row_ = len(self.columns), len(self.rows)
        lp.col_cost_ = numpy.array(cost)
        lp.col_lower_ = numpy.zeros(lp.num_col_)
        lp.col_upper_ = numpy.array(most)
        kinds = highspy.HighsVarType
        lp.integrality_ = [
            kinds.kInteger if x else kinds.kContinuous for x in integer
        ]
        lp.row_lower_ = numpy.array([row[0] for row in self.rows])
        lp.row_upper_ = numpy.array([row[1] for row in self.rows])
        sizes = [0] + [len(row[2]) for row in self.rows]
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = numpy.array(list(itertools.accumulate(sizes)))
        entries = [x for row in self.rows for x in row[2].items()]
        lp.a_matrix_.index_ = numpy.array([x[0] for x in entries])
        lp.a_matrix_.value_ = numpy.array([float(x[1]) for x in entries])
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        # Python's own limit waits for the solver to return.
        solver.setOptionValue("time_limit", float(LIMIT))
        # It has to prove the optimum, not to come near.
        solver.setOptionValue("mip_rel_gap", 0.0)
        solver.setOptionValue("mip_abs_gap", 0.0)
        solver.passModel(lp)
        solver.run()
        status = solver.getModelStatus()
        optimal = highspy.HighsModelStatus.kOptimal
        require(
            status == optimal, f"HiGHS says {solver.modelStatusToString(status)}"
        )
        info = solver.getInfo()
        bound = info.mip_dual_bound if any(integer) else info.objective_function_value
        return list(solver.getSolution().col_value), bound


#===-----------------------------------------------------------------------===#
# Shardings
#===-----------------------------------------------------------------------===#


def price(problem: dict, values: list[int]) -> float:
    """Seconds of one assignment; infinite where it breaks a rule."""
    terms = []
    for table in problem["costs"]:
        place = 0
        for variable in table["variables"]:
            size = len(problem["variables"][variable]["choices"])
            place = place * size + values[variable]
        found = table["seconds"][place]
        terms.append(math.inf if found is None else found)
    return math.fsum(terms)


def sum_tables(problem: dict) -> dict[tuple[int, ...], list[float]]:
    """Of each set of variables one, in place of one a layer."""
    gathered = {}
    for table in problem["costs"]:
        columns = [math.inf if x is None else x for x in table["seconds"]]
        gathered.setdefault(tuple(table["variables"]), []).append(columns)
    return {k: [math.fsum(x) for x in zip(*v)] for k, v in gathered.items()}


def solve_shardings(problem: dict, scale: float) -> tuple[list[int], float]:
    """The best assignment and a lower bound. One variable of the programme says
    that a variable of the problem has a value, and one that a pair has a pair of
    values, which has to agree with both (the local marginal polytope;
    Wainwright and Jordan 2008, section 4.1). `scale` is about what a good
    assignment costs."""
    programme = Programme()
    sizes = [len(x["choices"]) for x in problem["variables"]]
    tables = sum_tables(problem)
    has = []
    for variable, size in enumerate(sizes):
        own = tables.get((variable,), [0.0] * size)
        has.append(
            [
                programme.add(0.0, 0.0) if x == math.inf else programme.add(x / scale)
                for x in own
            ]
        )
        programme.require(1, 1, dict.fromkeys(has[-1], 1.0))
    for scope, costs in tables.items():
        if len(scope) == 1:
            continue
        a, b = scope
        both = {
            place: programme.add(cost / scale, integer=False)
            for place, cost in zip(
                itertools.product(range(sizes[a]), range(sizes[b])), costs
            )
            if cost != math.inf
        }
        for side, variable in enumerate(scope):
            for value, single in enumerate(has[variable]):
                row = {v: 1.0 for place, v in both.items() if place[side] == value}
                programme.require(0, 0, row | {single: -1.0})
    found, bound = programme.solve()
    best = [max(range(len(x)), key=lambda i, x=x: found[x[i]]) for x in has]
    return best, bound * scale


def check_shardings(problem: dict) -> str:
    """Of plait's answer the cost, and that none is less."""
    own = price(problem, problem["solution"])
    claimed = problem["seconds"]
    require(
        abs(own - claimed) <= ROUNDING * abs(own),
        f"the solution takes {own!r} s, not {claimed!r} s as plait says",
    )
    best, bound = solve_shardings(problem, own or 1.0)
    other = price(problem, best)
    require(
        own <= other + ROUNDING * abs(own),
        f"HiGHS finds {other!r} s, plait {own!r} s",
    )
    # Else the programme is another problem than plait's.
    for name, seconds in (("finds", other), ("proves", bound)):
        require(
            abs(seconds - own) <= SOLVER * abs(own),
            f"HiGHS {name} {seconds!r} s, and plait has {own!r} s",
        )
    sizes = [len(x["choices"]) for x in problem["variables"]]
    ways = sum(map(math.log10, sizes))
    return f"{len(sizes)} variables, 10^{ways:.0f} assignments: {own:.3g} s"


#===-----------------------------------------------------------------------===#
# Stages
#===-----------------------------------------------------------------------===#


def load_ranks(problem: dict, cut: list[int]) -> list[float]:
    loads = [0.0] * problem["ranks"]
    ends = [problem["before"] or 0.0] + [0.0] * (len(cut) - 1)
    ends[-1] += problem["after"] or 0.0
    layer = iter(problem["layers"])
    for rank, size, end in zip(problem["rank_of_stage"], cut, ends):
        loads[rank] += end + sum(next(layer) for _ in range(size))
    return loads


def solve_stages(problem: dict) -> tuple[list[int], float]:
    """A cut whose slowest rank is as fast as can be, and a lower bound. A variable
    says that a layer lies on a stage or in front of it: such are all layers before
    it, and it does so for all later stages."""
    programme = Programme()
    layers, stages = problem["layers"], len(problem["rank_of_stage"])
    ends = (problem["before"], problem["after"])
    scale = (sum(layers) + sum(x or 0 for x in ends)) / problem["ranks"] or 1.0
    slowest = programme.add(1.0, problem["ranks"], integer=False)
    until = [[programme.add() for _ in range(stages)] for _ in layers]
    for one in until:
        programme.require(1, 1, {one[-1]: 1.0})
        for a, b in itertools.pairwise(one):
            programme.require(0, math.inf, {b: 1.0, a: -1.0})
    for a, b in itertools.pairwise(until):
        for x, y in zip(a, b):
            programme.require(0, math.inf, {x: 1.0, y: -1.0})
    # Where there are more stages than layers, an end can be one alone.
    extra = stages > len(layers)
    rows = [{slowest: -1.0} for _ in range(problem["ranks"])]
    given = [0.0] * problem["ranks"]
    for stage, rank in enumerate(problem["rank_of_stage"]):
        size = {}
        for cost, one in zip(layers, until):
            parts = [(one[stage], 1.0)] + [(one[stage - 1], -1.0)] * (stage > 0)
            for variable, sign in parts:
                size[variable] = sign
                row = rows[rank]
                row[variable] = row.get(variable, 0.0) + sign * cost / scale
        is_end = {0: ends[0], stages - 1: ends[1]}
        alone = extra and is_end.get(stage) is not None
        programme.require(0 if alone else 1, math.inf, size)
        given[rank] += (ends[0] or 0) / scale if stage == 0 else 0
        given[rank] += (ends[1] or 0) / scale if stage == stages - 1 else 0
    for row, load in zip(rows, given):
        programme.require(-math.inf, -load, row)
    found, bound = programme.solve()
    counts = [
        sum(round(found[one[stage]]) for one in until) for stage in range(stages)
    ]
    cut = [b - a for a, b in zip([0] + counts, counts)]
    return cut, bound * scale


def is_exact(problem: dict) -> bool:
    """Of several stages a rank the cut is exact for layers that are alike."""
    chunks = len(problem["rank_of_stage"]) // problem["ranks"]
    return chunks == 1 or len(set(problem["layers"])) == 1


def check_stages(problem: dict) -> str:
    own = max(load_ranks(problem, problem["solution"]))
    claimed = problem["slowest_rank"]
    require(own == claimed, f"the slowest rank has {own!r}, not {claimed!r}")
    best, bound = solve_stages(problem)
    other = max(load_ranks(problem, best))
    shown = f"{problem['solution']} has {own:g}, HiGHS {best} {other:g}"
    if is_exact(problem):
        require(own <= other * (1 + CUT), shown)
    require(other <= own * (1 + CUT), f"no optimum: {shown}")
    require(abs(bound - other) <= SOLVER * other, f"HiGHS proves {bound!r} only")
    stages = len(problem["rank_of_stage"])
    kind = "" if is_exact(problem) else f", {own / other - 1:.1%} over the best"
    return f"{len(problem['layers'])} layers on {stages} stages{kind}"


#===-----------------------------------------------------------------------===#
# Draws
#===-----------------------------------------------------------------------===#

# (name, virtual stages of a rank)
SCHEDULES = (("1f1b", 1), ("interleaved-1f1b", 2), ("interleaved-1f1b", 3), ("zb-v", 2))


@dataclasses.dataclass
class Draw:
    """A model, and what a pass asks the module."""

    seed: str

    def __post_init__(self):
        rng = random.Random(self.seed)
        self.tp = rng.choice((2, 2, 3, 4, 4, 8))
        self.dp = rng.choice((1, 1, 2))
        self.sequence_parallel = rng.random() < 0.5
        self.schedule, chunks = rng.choice(SCHEDULES)
        self.layers = rng.randint(1, 12)
        # Ends may be stages of their own.
        self.pp = rng.randint(1, max(1, min(6, (self.layers + 2) // chunks)))
        if self.pp * chunks > self.layers + 2:
            self.schedule, chunks = "1f1b", 1
        self.chunks = chunks
        self.rates = draw_rates(rng)
        self.is_config = rng.random() < 0.4
        self.rng = rng

    def write(self, tools: Tools, folder: pathlib.Path) -> pathlib.Path:
        text = self.import_config(tools, folder) if self.is_config else self.draw()
        head, body = text.split("\n", 1)
        require(head.startswith("module attributes {"), f"unexpected: {head}")
        head = head.replace("{", "{" + self.rates + ", ", 1)
        mesh = f'dist.mesh @mesh ["pp", "dp", "tp"] = [{self.pp}, {self.dp}, {self.tp}]\n'
        path = folder / "model.mlir"
        path.write_text(f"{head}\n{'' if self.is_config else mesh}{body}")
        return path

    def draw(self) -> str:
        # Not `pp`: what is drawn has as many layers as that has stages.
        layout = Layout(pp=self.layers, dp=self.dp, tp=self.tp)
        layout.sequence_parallel = self.sequence_parallel
        layout.micro = self.rng.choice((1, 2, 3))
        return to_text(draw_graph(self.rng, layout))

    def import_config(self, tools: Tools, folder: pathlib.Path) -> str:
        while True:
            config = draw_config(self.rng)
            if any(heads % self.tp == 0 for heads in get_heads(config)):
                break
            self.tp = 2
        key = "n_layer" if "n_layer" in config else "num_hidden_layers"
        config[key] = self.layers
        file = folder / "config.json"
        file.write_text(json.dumps(config))
        mesh = f"pp={self.pp},dp={self.dp},tp={self.tp}"
        options = ["--mesh", mesh, "--global-batch", str(2 * self.dp)]
        options += ["--micro-batch", "2", "--seq", "16", "--compile-to", "import"]
        return tools.run("plaitc", file, *options, "-o", "-").stdout

    def solve(self, tools: Tools, folder: pathlib.Path) -> tuple[dict, dict]:
        """Both problems with plait's answers."""
        files = [folder / f"{name}.json" for name in ("shardings", "stages")]
        told = f"schedule={self.schedule} chunks={self.chunks}"
        told += f" sequence-parallel={str(self.sequence_parallel).lower()}"
        passes = [
            f"plait-configure{{{told}}}",
            "nn-decompose{early=true}",
            "canonicalize",
            "cse",
            f"dist-assign-shardings{{problem={files[0]}}}",
            f"pipe-assign-stages{{problem={files[1]}}}",
        ]
        pipeline = f"--pass-pipeline=builtin.module({','.join(passes)})"
        model = self.write(tools, folder)
        tools.run("plait-opt", model, pipeline, "-o", folder / "out.mlir")
        shardings, stages = (json.loads(file.read_text()) for file in files)
        return shardings, stages


def draw_rates(rng: random.Random) -> str:
    """Of anything between a slow network and none to speak of: which of work,
    memory and messages decides is different in every draw."""

    def between(low: float, high: float) -> str:
        return f"{math.exp(rng.uniform(math.log(low), math.log(high))):.6e} : f64"

    latency = rng.choice(("0.0 : f64", between(1e-9, 1e-5)))
    return (
        'plait.cluster = #plait.cluster<name = "drawn", device = "d", nodes = 1, '
        "devices_per_node = 64, memory = 100, reserved = 1, "
        f"peak_flops = 1.0e+15 : f64, rates = <gemm_flops = {between(1e9, 1e15)}, "
        f"memory_bandwidth = {between(1e9, 3e12)}, links = [#plait.link<"
        f'axis = "tp", latency = {latency}, bandwidth = {between(1e8, 1e12)}>]>>'
    )


#===-----------------------------------------------------------------------===#
# What has to be found out
#===-----------------------------------------------------------------------===#


def place_of(problem: dict, table: dict, values: list[int]) -> int:
    place = 0
    for variable in table["variables"]:
        place = place * len(problem["variables"][variable]["choices"])
        place += values[variable]
    return place


# Each makes what can be changed in a problem, one function a change. They are
# counted first, so that a problem without any is known for it.


def other_answers(problem: dict):
    """(values, seconds) that differ from plait's in one variable, and cost more."""
    for variable, choices in enumerate(problem["variables"]):
        for value in range(len(choices["choices"])):
            values = list(problem["solution"])
            values[variable] = value
            seconds = price(problem, values)
            if problem["seconds"] * (1 + 1e-9) < seconds < math.inf:
                yield values, seconds


def cheapen_others(problem: dict):
    """A table where another answer has another cost makes that the cheaper one."""

    def cheapen(table, place, gain):
        table["seconds"][place] -= gain

    for values, seconds in other_answers(problem):
        for table in problem["costs"]:
            place = place_of(problem, table, values)
            if place != place_of(problem, table, problem["solution"]):
                gain = seconds + problem["seconds"]
                yield lambda t=table, p=place, g=gain: cheapen(t, p, g)


def raise_own(problem: dict):
    """A cost of the answer, by a part in a million of the whole."""

    def increase(table):
        place = place_of(problem, table, problem["solution"])
        table["seconds"][place] += 1e-6 * problem["seconds"]

    for table in problem["costs"]:
        yield lambda t=table: increase(t)


def choose_worse(problem: dict):
    """Another value of one variable, at its price."""
    for values, seconds in other_answers(problem):
        yield lambda v=values, s=seconds: problem.update(solution=v, seconds=s)


def move_layer(problem: dict):
    """Another cut, with a slower rank, at its load."""
    for a, b in itertools.permutations(range(len(problem["solution"])), 2):
        cut = list(problem["solution"])
        cut[a] -= 1
        cut[b] += 1
        slowest = max(load_ranks(problem, cut)) if cut[a] >= 1 else 0.0
        if slowest > problem["slowest_rank"] * (1 + CUT):
            yield lambda c=cut, s=slowest: problem.update(solution=c, slowest_rank=s)


def lighten_layer(problem: dict):
    """A layer of the slowest rank costs nothing, and no other rank is as slow."""

    def lighten(layer):
        problem["layers"][layer] = 0

    loads = load_ranks(problem, problem["solution"])
    rank, first = loads.index(max(loads)), 0
    if loads.count(loads[rank]) > 1:
        return
    for where, size in zip(problem["rank_of_stage"], problem["solution"]):
        for layer in range(first, first + size):
            if where == rank and problem["layers"][layer] > 0:
                yield lambda x=layer: lighten(x)
        first += size


MUTATIONS = {
    "shardings": (cheapen_others, raise_own, choose_worse),
    "stages": (move_layer, lighten_layer),
}
CHECKS = {"shardings": check_shardings, "stages": check_stages}


def find_out(kind: str, problem: dict, change, seed: str) -> str:
    changed = copy.deepcopy(problem)
    random.Random(seed).choice(list(change(changed)))()
    try:
        CHECKS[kind](changed)
    except Failure as failure:
        return f"found out: {failure}"
    raise Failure("the comparison has found nothing")


def hold_changes(report: Reporter, solved: dict[str, list[dict]]) -> None:
    """Each kind of change, in the first problems that it can be made in."""
    for kind, changes in MUTATIONS.items():
        problems = [x for x in solved[kind] if kind == "shardings" or is_exact(x)]
        for change in changes:
            able = (x for x in problems if next(change(x), None) is not None)
            chosen = list(itertools.islice(able, CHANGED))
            name = f"changed/{kind}/{change.__name__}"
            if report.wants(name):
                report.case(
                    name,
                    lambda n=len(chosen): require(n > 0, "no problem to change"),
                )
            for index, problem in enumerate(chosen):
                report.case(
                    f"{name}-{index}",
                    lambda k=kind, p=problem, c=change, n=f"{name}-{index}": find_out(
                        k, p, c, n
                    ),
                )


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--seed", default="1")
    options = parser.parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("optima", options.filter, LIMIT)
    solved = {kind: [] for kind in CHECKS}

    def hold(index: int) -> str:
        draw = Draw(f"optima/{options.seed}/{index}")
        with tempfile.TemporaryDirectory() as folder:
            problems = dict(zip(CHECKS, draw.solve(tools, pathlib.Path(folder))))
        for kind, problem in problems.items():
            solved[kind].append(problem)
        return "; ".join(CHECKS[kind](x) for kind, x in problems.items())

    for index in range(options.draws):
        report.case(f"{options.seed}-{index}", lambda x=index: hold(x))
    hold_changes(report, solved)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
