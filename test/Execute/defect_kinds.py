#===- defect_kinds.py - Defects in the IR of a plan -------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""The kinds of defects, each a generator of changed modules.

A kind takes the lines of a module after phase `lower` and yields, for each place
where it applies, what it did and the changed lines. Kinds work on text: they
share no code with what they test, and make what a wrong pass would make."""

import re
from collections.abc import Iterator

from defect_text import (  # noqa: F401, for those that import kinds
    KINDS,
    Change,
    Kind,
    Lines,
    each,
    kind,
    replaced,
    textual,
)

# Collectives

COLLECTIVE = r"^( *)(%[\w#]+) = dist\.(\w+) (%[\w#]+) on @mesh"


def lost(line: str, match: re.Match) -> str:
    """A collective's line, with what it takes for its result."""
    attrs = re.search(r"\{.*\}", line)
    return (f"{match[1]}{match[2]} = nn.scale {match[4]} by 1.0 "
            f"{attrs[0] if attrs else ''} : {line.rsplit(' -> ', 1)[1]}")


@kind("drop-all-reduce", "a partial sum is used as if it were whole")
def drop_all_reduce(lines: Lines) -> Iterator[Change]:
    for at, match in each(lines, COLLECTIVE):
        if match[3] != "all_reduce":
            continue
        yield replaced(lines, at, lost(lines[at], match))


@kind("double-all-reduce", "a sum over ranks is summed a second time")
def double_all_reduce(lines: Lines) -> Iterator[Change]:
    for at, match in each(lines, COLLECTIVE):
        # The maximum of maxima is the same maximum.
        if match[3] != "all_reduce" or re.search(r"\] +max ", lines[at]):
            continue
        again = lines[at].replace(f"{match[2]} = ", "%again = ", 1)
        second = lines[at].replace(f" {match[4]} on", " %again on", 1)
        yield replaced(lines, at, again, second)


@kind("scatter-without-sum", "a rank takes its block of its own partial sum")
def scatter_without_sum(lines: Lines) -> Iterator[Change]:
    for at, match in each(lines, COLLECTIVE):
        if match[3] == "reduce_scatter":
            new = lines[at].replace("dist.reduce_scatter", "dist.slice")
            yield replaced(lines, at, re.sub(r'(@mesh\["\w+"\]) +\w+ dim', r"\1 dim", new))


for one, other in (("tp", "dp"), ("dp", "tp"), ("cp", "dp"), ("pp", "dp"),
                   ("dp", "cp"), ("tp", "pp"), ("dp", "pp")):
    textual(
        f"group-{one}-{other}",
        f"a collective over {one} is one over {other}",
        rf'on @mesh\["{one}"\]',
        f'on @mesh["{other}"]',
    )
textual(
    "exchange",
    "positions are exchanged for heads with ranks that have others",
    r'(dist\.all_to_all .* on @mesh)\["cp"\]',
    r'\1["dp"]',
)
textual("sum-to-max", "a sum over ranks is a maximum", r"(dist\.\w+ .*\]) +sum", r"\1 max")
textual("max-to-sum", "a maximum over ranks is a sum", r"(dist\.\w+ .*\]) +max", r"\1 sum")
textual(
    "members",
    "a sum over the pipeline leaves out its last member",
    r"members \[(\d+(?:, \d+)*), \d+\]",
    r"members [\1]",
)


@kind("wrong-collective-dim", "a collective splits another dimension")
def wrong_dim(lines: Lines) -> Iterator[Change]:
    for at, match in each(lines, r"dist\.(?:all_gather|reduce_scatter|slice) .* dim (\d)"):
        for dim in {0, 1, 2} - {int(match[1])}:
            yield replaced(lines, at, lines[at].replace(f"dim {match[1]}", f"dim {dim}", 1))


textual(
    "rounds-lost",
    "blocks that are dealt out in rounds are taken for neighbours",
    r"(dist\.(?:all_gather|reduce_scatter|slice) .*) rounds \d+",
    r"\1",
)
textual(
    "rounds-other",
    "blocks are dealt out in fewer rounds than they are put together in",
    r"(dist\.(?:all_gather|reduce_scatter|slice) .*) rounds 4",
    r"\1 rounds 2",
)

# Roundings of gradients

@kind("unrounded", "a gradient is not rounded before ranks add it up")
def leave_unrounded(lines: Lines) -> Iterator[Change]:
    for at, match in each(lines, r"^ *(%\w+) = nn\.cast .* -> tensor<[\dx]*xbf16>$"):
        first = next(n for n in range(at, 0, -1) if "func.func" in lines[n])
        if "@reduce_" not in lines[first]:
            continue
        # Up to where it is widened again, all that is made of it is in f32.
        end = next(n for n in range(at + 1, len(lines)) if "nn.cast" in lines[n])
        chain = [line.replace("xbf16>", "xf32>") for line in lines[at : end + 1]]
        yield at, lines[:at] + chain + lines[end + 1 :]


@kind("rounded", "a gradient is rounded before it is added up, which was not asked for")
def round_gradient(lines: Lines) -> Iterator[Change]:
    if any("reduce_precision = bf16" in line for line in lines):
        return
    for at, match in each(lines, r"nn\.accumulate (%\w+) to .* gradient .*: (tensor<.*xf32>)$"):
        value, wide = match.groups()
        narrow = wide.replace("xf32>", "xbf16>")
        yield replaced(
            lines,
            at,
            f"%narrow = nn.cast {value} : {wide} -> {narrow}",
            f"%rounded = nn.cast %narrow : {narrow} -> {wide}",
            lines[at].replace(f"nn.accumulate {value} ", "nn.accumulate %rounded "),
        )


# Arithmetic

textual("add-to-sub", "an addition is a subtraction", r"nn\.add ", "nn.sub ")
textual("mul-to-add", "a product is a sum", r"nn\.mul ", "nn.add ")
textual("div-to-mul", "a quotient is a product", r"nn\.div ", "nn.mul ")
textual("exp-to-tanh", "another function is applied", r"nn\.exp ", "nn.tanh ")
textual("sqrt-to-rsqrt", "the root is inverted", r"nn\.sqrt ", "nn.rsqrt ")
textual("drop-neg", "a sign is lost", r"nn\.neg ", "nn.stop_gradient ")
textual("wrong-scale", "a number is twice too large", r"nn\.scale (\S+) by \S+", r"nn.scale \1 by 3.0e+00")
textual("wrong-shift", "another number is added", r"nn\.shift (\S+) by \S+", r"nn.shift \1 by 3.0e+00")
textual("wrong-fill", "a constant is another", r"nn\.fill \S+ :", "nn.fill 3.0 :")
textual("reduce-max", "rows are maximised instead of summed", r"nn\.reduce  sum", "nn.reduce  max")
textual("reduce-sum", "rows are summed instead of maximised", r"nn\.reduce  max", "nn.reduce  sum")
textual("swap-sub", "operands of a difference are swapped", r"nn\.sub (\S+), (\S+)", r"nn.sub \2, \1")
textual("swap-div", "operands of a quotient are swapped", r"nn\.div (\S+), (\S+)", r"nn.div \2, \1")
textual("swap-matmul", "operands of a product are swapped", r"nn\.matmul (\S+), (\S+) ", r"nn.matmul \2, \1 ")
textual("drop-mask", "attention sees the future", r"nn\.causal_mask (%\w+)", r"nn.stop_gradient \1")
textual("window", "attention sees a window only", r"nn\.causal_mask (%\w+)", r"nn.causal_mask \1 window 2")
textual("drop-rotation", "positions are not rotated", r"nn\.rotate_half (%\w+)", r"nn.stop_gradient \1")
textual("cosine-to-sine", "the cosine of a position is its sine", r"nn\.rope_table theta", "nn.rope_table sine theta")
textual("ignore", "another target is ignored", r"ignore -100", "ignore -1")
textual("drop-gelu", "an activation is left out of a product", r"(nn\.fused_matmul .*) gelu \{", r"\1 {")
textual(
    "drop-addend",
    "a product is not added to what the one before it left",
    r"nn\.fused_matmul (.*) add %\S+ (.*), tensor<[^>]*>\) ->",
    r"nn.matmul \1 \2) ->",
)
textual("residual", "a layer's input is added to itself", r"nn\.add (%\w+), (?!\1)%\w+ ", r"nn.add \1, \1 ")
textual("skip-branch", "a layer is skipped", r"nn\.add (%\w+), %\w+( \{.*nn\.layer.*)? : (tensor<\d+x\d+x\d+xf32>)$", r"nn.scale \1 by 1.0 : \3")
textual("attention-scale", "attention's scores are scaled otherwise", r"(nn\.attention.* scale) \S+", r"\1 3.0e+00")
textual("attention-window", "one step of attention sees a window only", r"(nn\.attention\w* .* scale \S+)(?! window)", r"\1 window 2")
textual("swap-keys", "attention takes its keys for its values", r"(nn\.attention\w* %\S+), (%\S+), (%[\w#]+)", r"\1, \3, \2")
textual("reduce-dims", "sums go over another dimension", r"(nn\.reduce +\w+ \S+ dims) \[2\]", r"\1 [1]")
textual("square", "a square is a product with something else", r"nn\.mul (%\w+), \1 ", r"nn.add \1, \1 ")

# Dropout

textual("local-mask", "dropout counts its own rank's elements", r"\{begins = \[[^\]]*\](, )?", "{")
textual("mask-begin", "dropout counts from a wrong place", r'(begins = \[.*?#nn\.begin<"\w+" \*) (\d+)', r"\1 1\2")
textual("group-begin", "dropout of attention counts its own heads", r"group_begin = #nn\.begin<[^>]*>, ", "")
textual("mask-site", "the backward pass, or another dropout, draws another mask", r"(dropout .*) site \d+", r"\1 site 77")
textual("mask-probability", "dropout drops more", r"(dropout .* probability) \S+", r"\1 5.0e-01")
textual("drop-dropout", "nothing is dropped", r"nn\.dropout (%\w+), .* : (tensor<[^>]*>), tensor<[^>]*>", r"nn.stop_gradient \1 : \2")
textual("keep-attention", "attention drops nothing", r"(nn\.attention .*) dropout %\S+ probability \S+ site \d+ (\{.*\} : \(.*), tensor<\d+xi32>\)", r"\1 \2)")


@kind("transposed-spec", "a product contracts other dimensions")
def transposed_spec(lines: Lines) -> Iterator[Change]:
    for at, match in each(lines, r'nn\.matmul \S+ \S+ "(\w+),(\w+)->(\w+)"'):
        for old in match.groups():
            for i in range(len(old) - 1):
                new = old[:i] + old[i + 1] + old[i] + old[i + 2 :]
                text = match[0].replace(f'"{old},', f'"{new},').replace(f">{old}\"", f'>{new}"')
                text = text.replace(f",{old}->", f",{new}->")
                if text != match[0]:
                    yield replaced(lines, at, lines[at].replace(match[0], text, 1))


@kind("other-operand", "an op takes another value of the same type")
def other_operand(lines: Lines) -> Iterator[Change]:
    define = re.compile(r"^ *(%\w+) = (?:nn|dist)\.(?!step_scalar).*?: (?:.*-> )?(tensor<\S+>)$")
    known: dict[str, list[str]] = {}
    depth: list[dict[str, list[str]]] = []
    for at, line in enumerate(lines):
        if line.lstrip().startswith(("func.func", "^bb0")):
            depth.append(known)
            known = {}
        use = re.search(r"nn\.(?:add|mul|sub|exp|matmul|neg|accumulate) (%\w+)(.*): (?:\()?(tensor<[^,>]*>)", line)
        if use:
            for value in known.get(use[3], [])[-3:]:
                if value != use[1]:
                    yield replaced(lines, at, line.replace(use[1], value, 1))
                    break
        if match := define.match(line):
            known.setdefault(match[2], []).append(match[1])
        if line.strip() == "}" and depth:
            known = depth.pop()


# Indices

textual("begin-stride", "a rank counts from a wrong place", r'begin = #nn\.begin<"(\w+)" \* (\d+)', r'begin = #nn.begin<"\1" * 1\2')
textual("drop-begin", "all ranks count from 0", r"begin = #nn\.begin<[^>]*>, ", "")
textual("begin-axis", "a rank counts along another axis", r'(begin = #nn\.begin<)"tp"', r'\1"dp"')
textual("begin-extent", "a rank counts in a dimension of another size", r"(begin = #nn\.begin<[^>]* of )(\d+)", r"\g<1>1\2")
textual("begin-order", "positions are counted as elements are stored", r"(\bbegin = #nn\.begin<[^>]*) zigzag \d+>", r"\1>")
textual("mask-order", "masks of dropout are drawn as elements are stored", r"(begins = \[.*#nn\.begin<[^>]*) zigzag \d+>", r"\1>")
textual("begin-chunks", "positions are counted in other chunks", r"(#nn\.begin<[^>]* zigzag )4>", r"\g<1>8>")
textual("drop-reorder", "keys are taken as they are stored", r"nn\.reorder (%\w+) dim \d+ zigzag \d+(?: inverse)?(.* : tensor<[^>]*f32>)", r"nn.scale \1 by 1.0\2")
textual("reorder-again", "keys in zig-zag order are brought into it again", r"(nn\.reorder .* zigzag \d+) inverse", r"\1")
textual("reorder-chunks", "keys are reordered in other chunks", r"(nn\.reorder .* zigzag )4", r"\g<1>8")
textual("iota-dim", "positions are counted along the batch", r"nn\.iota along 1", "nn.iota along 0")
textual("limit", "a bound of a table is one row off", r"limit = (\d+)", r"limit = 1\1")
textual("mask-limit", "padding begins one element too late", r"limit (\d+) by", r"limit 1\1 by")

# Parameters, gradients, state


@kind("read-other", "a layer reads another parameter of the same shape")
def read_other(lines: Lines) -> Iterator[Change]:
    reads: dict[str, list[str]] = {}
    for at, match in each(lines, r"nn\.read @(\S+)  (\w+) .*: (tensor<\S+>)$"):
        seen = reads.setdefault(match[3] + match[2], [])
        for other in seen:
            if other != match[1]:
                yield replaced(lines, at, lines[at].replace(f"@{match[1]} ", f"@{other} ", 1))
                break
        if match[1] not in seen:
            seen.append(match[1])


@kind("accumulate-other", "a gradient is added to that of another parameter")
def accumulate_other(lines: Lines) -> Iterator[Change]:
    seen: dict[str, str] = {}
    for at, match in each(lines, r"nn\.accumulate %\S+ to @(\S+) +\w+ .*: (tensor<\S+>)$"):
        other = seen.setdefault(match[2], match[1])
        if other != match[1]:
            yield replaced(lines, at, lines[at].replace(f"@{match[1]} ", f"@{other} ", 1))


@kind("drop-accumulate", "a gradient is not added")
def drop_accumulate(lines: Lines) -> Iterator[Change]:
    for at, _ in each(lines, r"^ *nn\.accumulate "):
        yield replaced(lines, at)


@kind("double-accumulate", "a gradient is added twice")
def double_accumulate(lines: Lines) -> Iterator[Change]:
    for at, _ in each(lines, r"^ *nn\.accumulate "):
        yield replaced(lines, at, lines[at], lines[at])


@kind("drop-write", "a parameter or its state is not updated")
def drop_write(lines: Lines) -> Iterator[Change]:
    for at, _ in each(lines, r"^ *nn\.write "):
        yield replaced(lines, at)


@kind("swap-writes", "two parameters or their states are exchanged")
def swap_writes(lines: Lines) -> Iterator[Change]:
    last: dict[str, int] = {}
    for at, match in each(lines, r"^ *nn\.write (%\S+) to .*: (tensor<\S+>)$"):
        if match[2] in last:
            before = last[match[2]]
            other = re.search(r"nn\.write (%\S+) ", lines[before])[1]
            if other != match[1]:
                yield replaced(lines, at, lines[at].replace(match[1], other, 1))
        last[match[2]] = at


@kind("swap-members", "two members of a pack change places")
def swap_members(lines: Lines) -> Iterator[Change]:
    # Before anything has a place, packs may have their members in any order.
    if not any("plan.places" in line for line in lines):
        return
    for at, match in each(lines, r"nn\.pack \S+ rank \d+ \[([^\]]*)\]"):
        members = match[1].split(", ")
        for i in range(len(members) - 1):
            new = list(members)
            new[i], new[i + 1] = new[i + 1], new[i]
            yield replaced(lines, at, lines[at].replace(match[1], ", ".join(new)))


@kind("read-place", "a parameter is read where another one lies")
def read_place(lines: Lines) -> Iterator[Change]:
    last: dict[str, str] = {}
    for at, match in each(lines, r"nn\.read @\S+ .*(#plan\.place<[^>]*>).*: (tensor<\S+>)$"):
        other = last.get(match[2])
        if other and other != match[1]:
            yield replaced(lines, at, lines[at].replace(match[1], other))
        last[match[2]] = match[1]


@kind("gradient-place", "a gradient is put where another one lies")
def gradient_place(lines: Lines) -> Iterator[Change]:
    last = ""
    for at, match in each(lines, r'(#plan\.place<@"[^"]* gradient", \d+>)'):
        if last and last != match[1] and "nn.read" not in lines[at]:
            yield replaced(lines, at, lines[at].replace(match[1], last))
        last = match[1]


textual("pack-offset", "a member of a pack begins elsewhere", r"(nn\.pack .* at \[\d+, )(\d+)", r"\g<1>1\2")
textual("accumulate-slot", "a gradient is added to the reduced one", r"(nn\.accumulate \S+ to @\S+ +)gradient", r"\1reduced")
textual("write-slot", "one moment is written for the other", r"(nn\.write \S+ to @\S+ +)moment1", r"\1moment2")
textual("stop-clipping", "gradients are clipped to another norm", r'nn\.step_scalar "MaxGradNorm"', 'nn.step_scalar "Epsilon"')
textual("epsilon", "another number keeps the divisor from zero", r'nn\.step_scalar "Epsilon"', 'nn.step_scalar "Beta1"')
textual("learning-rate", "the step has another size", r'nn\.step_scalar "LearningRate"', 'nn.step_scalar "Beta1"')
textual("count", "tokens are counted as losses are summed", r"(nn\.accumulate \S+ to )@token_count", r"\1@loss_sum")
textual("moment-slot", "one moment is read for the other", r"(nn\.read @\S+ +)moment1", r"\1moment2")
textual("value-slot", "a moment is read for the value", r"(nn\.read @\S+ +)value( .*(?:4096|state))", r"\1moment1\2")
textual("gradient-slot", "the unreduced gradient is read", r"(nn\.read @\S+ +)reduced", r"\1gradient")
textual("beta", "one decay rate is taken for the other", r'nn\.step_scalar "Beta1"', 'nn.step_scalar "Beta2"')
textual("weight-decay", "the learning rate decays weights", r'nn\.step_scalar "WeightDecay"', 'nn.step_scalar "LearningRate"')
textual("bias-correction", "one bias correction is the other", r'"BiasCorrection1"', '"BiasCorrection2"')
textual("metric", "another number is reported as the loss", r'nn\.metric (%\S+) "GradNorm"', r'nn.metric \1 "Loss"')
textual("sharding-axis", "a parameter is declared to lie otherwise", r'sharding #dist\.sharding<@mesh, \[\{"tp"\}, \{\}\]>', 'sharding #dist.sharding<@mesh, [{}, {"tp"}]>')
textual("undivided", "a divided parameter is declared whole", r'sharding #dist\.sharding<@mesh, \[\{"tp"\}\]>', "sharding #dist.sharding<@mesh, [{}]>")


# Functions and ports


@kind("swap-results", "two results of a function are exchanged")
def swap_results(lines: Lines) -> Iterator[Change]:
    for at, match in each(lines, r"^ *(return|plan\.yield) (%.*) : (tensor.*)$"):
        values, types = match[2].split(", "), re.findall(r"tensor<[^>]*>", match[3])
        for i in range(len(values)):
            for j in range(i + 1, len(values)):
                if types[i] == types[j] and values[i] != values[j]:
                    new = list(values)
                    new[i], new[j] = values[j], values[i]
                    yield replaced(lines, at, lines[at].replace(match[2], ", ".join(new), 1))
                    break


@kind("swap-ports", "two arguments of a function are taken for one another")
def swap_ports(lines: Lines) -> Iterator[Change]:
    argument = re.compile(r"(%arg\d+): (tensor<[^>]*>) \{pipe\.port = (#pipe\.port<[^>]*>)")
    for at, _ in each(lines, r"^ *func\.func "):
        found = list(argument.finditer(lines[at]))
        for one, other in zip(found, found[1:]):
            if one[2] != other[2]:
                continue
            line = lines[at]
            new = (
                line[: one.start(3)] + other[3] + line[one.end(3) : other.start(3)]
                + one[3] + line[other.end(3) :]
            )
            yield replaced(lines, at, new)


@kind("wrong-slot", "an argument is looked for where another one lies")
def wrong_slot(lines: Lines) -> Iterator[Change]:
    place = re.compile(r'residual \d+>, plan\.place = (#plan\.place<slot \d+, \d+>)')
    for at, _ in each(lines, r"^ *func\.func "):
        found = place.findall(lines[at])
        for one, other in zip(found, found[1:]):
            yield replaced(lines, at, lines[at].replace(one, other, 1))


@kind("tokens-for-targets", "the loss is taken of the tokens")
def tokens_for_targets(lines: Lines) -> Iterator[Change]:
    for at, _ in each(lines, r"pipe\.port<targets>"):
        if "pipe.port<tokens>" not in lines[at]:
            yield replaced(lines, at, lines[at].replace("pipe.port<targets>", "pipe.port<tokens>"))


# Memory


@kind("overlap", "a result lies over something that is still needed")
def overlap(lines: Lines) -> Iterator[Change]:
    place = r'plan\.places = \[(#plan\.place<slot \d+, \d+>)\]'
    before: list[tuple[str, str]] = []  # results and their places
    for at, line in enumerate(lines):
        if "func.func" in line:
            before = []
        result = re.match(r" *(%\w+) = (?!nn\.read)\w+\.\w+.*" + place, line)
        if not result:
            continue
        for value, other in before[-4:]:
            used = (re.search(re.escape(value) + r"\b", later)
                    for later in lines[at + 1 : at + 30] if "^bb" not in later)
            if other != result[2] and any(used):
                yield replaced(lines, at, line.replace(result[2], other))
                break
        before.append((result[1], result[2]))


@kind("other-move", "something else comes from the host, or goes there")
def other_move(lines: Lines) -> Iterator[Change]:
    before: dict[str, list[str]] = {}  # what was moved, by way and type
    for at, line in enumerate(lines):
        if "func.func" in line:
            before = {}
        match = re.search(r"plan\.move +(\w+) (%[\w#]+) .*: (tensor<\S+>)$", line)
        if not match:
            continue
        moved = before.setdefault(match[1] + match[3], [])
        if moved:
            yield replaced(lines, at, line.replace(f"{match[2]} ", f"{moved[-1]} ", 1))
        moved.append(match[2])


@kind("other-fetch", "what comes from the host is written where the last one is in use")
def other_fetch(lines: Lines) -> Iterator[Change]:
    place = r'plan\.move +from_host .*plan\.places = \[(#plan\.place<slot \d+, \d+>)\]'
    last = ""
    for at, line in enumerate(lines):
        if "func.func" in line:
            last = ""
        if match := re.search(place, line):
            if last and last != match[1]:
                yield replaced(lines, at, line.replace(match[1], last))
            last = match[1]


textual("host-buffer", "a buffer on the host is in the arena", r"(plan\.buffer .*) host at", r"\1 at")

RESIDUAL = r"(%arg\d+): (tensor<[^>]*>) \{pipe\.port = #pipe\.port<residual (\d+)>, plan\.place = (#plan\.place<[^>]*>)"


@kind("over-argument", "a result lies over what the function is given")
def over_argument(lines: Lines) -> Iterator[Change]:
    # Not over residuals, which may have been read for the last time.
    residuals = False
    for at, line in enumerate(lines):
        if "func.func" in line:
            residuals = any('<slot 0,' in own[3] for own in re.findall(RESIDUAL, line))
        new = re.sub(r'(plan\.places = \[#plan\.place<)slot (?!0)\d+, \d+', r'\1slot 0, 0', line)
        if new != line and not residuals:
            yield replaced(lines, at, new)


@kind("over-kept", "half of a backward pass lies over what the other half reads")
def over_kept(lines: Lines) -> Iterator[Change]:
    heads = {}  # by action and stage
    for at, match in each(lines, r"func\.func @backward_(input|weight)_(\d+)\("):
        heads[match[1], match[2]] = at
    for (half, stage), begin in heads.items():
        if half != "input" or ("weight", stage) not in heads:
            continue
        later = {own[2] for own in re.findall(RESIDUAL, lines[heads["weight", stage]])}
        end = next(at for at in range(begin, len(lines)) if lines[at] == "  }")
        for name, type, residual, place in re.findall(RESIDUAL, lines[begin]):
            # The last op of the half that makes as much, behind the last reader.
            made = rf"plan\.places = \[(#plan\.place<[^>]*>)\].* {re.escape(type)}$"
            for at in range(end - 1, begin, -1) if residual in later else ():
                if re.search(rf"{name}\b", lines[at]):
                    break
                if match := re.search(made, lines[at]):
                    yield replaced(lines, at, lines[at].replace(match[1], place))
                    break


textual("small-buffer", "a buffer is too small for what lies in it", r'(plan\.buffer .* (?:activations|transfers|workspace) at \d+ bytes) (?!0\b)\d+', r"\1 32")
textual("short-life", "a buffer dies before it is read", r"(plan\.buffer .* activations .* live \[(\d+)), \d+", r"\1, \2")
textual("one-buffer", "two slots of a call are one buffer", r'(plan\.action +(?:forward|backward).*)@"[^"]*", (@"[^"]*")', r"\1\2, \2")


@kind("overlapping-buffers", "two buffers that live together overlap")
def overlapping_buffers(lines: Lines) -> Iterator[Change]:
    last = None
    for at, match in each(lines, r"plan\.buffer .* at (\d+) bytes (\d+) live \[0, "):
        if last and last != match[1]:
            yield replaced(lines, at, lines[at].replace(f" at {match[1]} ", f" at {last} "))
        last = match[1]


# Programs


def actions(lines: Lines, pattern: str = "") -> Iterator[tuple[int, re.Match]]:
    yield from each(lines, r"^ *plan\.action +" + pattern)


@kind("drop-action", "an action is left out")
def drop_action(lines: Lines) -> Iterator[Change]:
    for at, _ in actions(lines, r"(?!wait_send)"):
        yield replaced(lines, at)


@kind("double-action", "an action is done twice")
def double_action(lines: Lines) -> Iterator[Change]:
    for at, _ in actions(lines, r"(?!wait_send|send|recv)"):
        yield replaced(lines, at, lines[at], lines[at])


@kind("wrong-microbatch", "a call is one for another microbatch")
def wrong_microbatch(lines: Lines) -> Iterator[Change]:
    for at, match in actions(lines, r"\w+ stage \d+ microbatch (\d+) call"):
        other = int(match[1]) - 1 if int(match[1]) else 1
        yield replaced(lines, at, re.sub(r"microbatch \d+ call", f"microbatch {other} call", lines[at]))


@kind("stale-buffer", "a call is given what belongs to another microbatch")
def stale_buffer(lines: Lines) -> Iterator[Change]:
    for at, match in actions(lines, r"(?:backward\w*|forward) stage \d+ microbatch (\d+) call"):
        for buffer in re.findall(r'@"[^"]*"', lines[at])[:8]:
            if f"microbatch {match[1]}" not in buffer:
                continue
            other = 0 if match[1] != "0" else 1
            new = buffer.replace(f"microbatch {match[1]}", f"microbatch {other}")
            yield replaced(lines, at, lines[at].replace(buffer, new, 1))


@kind("swap-buffers", "a call is given two buffers in the wrong order")
def swap_buffers(lines: Lines) -> Iterator[Change]:
    for at, _ in actions(lines, r"(?:backward\w*|forward) "):
        found = re.findall(r'@"(?:residual|activation|gradient)[^"]*"', lines[at])
        for one, other in zip(found, found[1:]):
            new = lines[at].replace(one, "@!", 1).replace(other, one, 1).replace("@!", other, 1)
            yield replaced(lines, at, new)


@kind("swap-messages", "two messages are sent in the wrong order")
def swap_messages(lines: Lines) -> Iterator[Change]:
    sends = [at for at, _ in actions(lines, r"send ")]
    for one, other in zip(sends, sends[1:]):
        first = re.search(r"\[.*\]", lines[one])[0]
        second = re.search(r"\[.*\]", lines[other])[0]
        new = list(lines)
        new[one] = lines[one].replace(first, second)
        new[other] = lines[other].replace(second, first)
        yield one, new


textual("half-batch", "half of the microbatches are left out", r"(pipe\.schedule .* microbatches) (\d*?)(\d) ", r"\1 1\2\3 ")
textual("wrong-peer", "a message goes to another rank", r"(plan\.action +(?:send|recv) .* peer) \d+", r"\1 7")
textual("wrong-tensor", "a message is another tensor's", r"(plan\.action +recv .* tensor) \d+", r"\1 5")
textual("wrong-function", "a call is one of another stage", r"(plan\.action +forward .*call @forward)_0", r"\1_1")


@kind("late-message", "a message is received for another microbatch")
def late_message(lines: Lines) -> Iterator[Change]:
    receives = [at for at, _ in actions(lines, r"recv ")]
    for one, other in zip(receives, receives[1:]):
        first = re.search(r"microbatch \d+", lines[one])[0]
        second = re.search(r"microbatch \d+", lines[other])[0]
        if first == second:
            continue
        new = list(lines)
        new[one] = lines[one].replace(first, second, 1)
        new[other] = lines[other].replace(second, first, 1)
        yield one, new


@kind("swap-functions", "two functions take one another's place")
def swap_functions(lines: Lines) -> Iterator[Change]:
    found = [at for at, _ in each(lines, r"#pipe\.function<(?:forward|backward\w*), \d+>")]
    name = re.compile(r"#pipe\.function<[^>]*>")
    for one, other in zip(found, found[1:]):
        new = list(lines)
        new[one] = name.sub(name.search(lines[other])[0], lines[one])
        new[other] = name.sub(name.search(lines[one])[0], lines[other])
        yield one, new


@kind("early-end", "gradients are reduced before the last microbatch")
def early_end(lines: Lines) -> Iterator[Change]:
    for at, _ in actions(lines, r"reduce "):
        for before in range(at - 1, 0, -1):
            if re.search(r"plan\.action +backward", lines[before]):
                new = list(lines)
                new.insert(before, new.pop(at))
                yield before, new
                break
            if "plan.action" not in lines[before]:
                break


textual("overwrite", "a gradient replaces those of the microbatches before", r"plan\.accumulate = [12] : i32", "plan.accumulate = 0 : i32")
textual("stale-gradient", "the gradients of the last step are not cleared", r"plan\.accumulate = 2 : i32", "plan.accumulate = 1 : i32")
textual("overwrite-kernel", "a kernel's gradient replaces those before", r"( accumulate \[(?:\d, )*)[12]", r"\g<1>0")
textual("stale-kernel", "a kernel adds to the gradients of the last step", r"( accumulate \[(?:\d, )*)2", r"\g<1>1")
