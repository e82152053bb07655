//===- PageStyle.h - Style of HTML pages ------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_PAGESTYLE_H
#define PLAIT_SUPPORT_PAGESTYLE_H

namespace plait {

/// The text between <style> and </style>. td.n holds a number.
inline constexpr char pageStyle[] = R"(
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff;
       max-width: 1020px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0; }
h2 { font-size: 1.1em; margin-top: 2em; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
td, th { text-align: left; padding: 3px 12px 3px 0; vertical-align: top;
         border-bottom: 1px solid #eee; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums;
             white-space: nowrap; }
svg { width: 100%; height: auto; } svg.bar { height: 18px; }
svg text { font: 11px system-ui, sans-serif; fill: #555; }
.limit { stroke: #c00; stroke-dasharray: 4 3; fill: none; }
.break { stroke: #888; stroke-dasharray: 2 3; fill: none; }
.line { fill: none; stroke-width: 1.3; }
.big { font-size: 1.3em; } .note { color: #666; font-size: 14px; }
.key { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
)";

} // namespace plait

#endif // PLAIT_SUPPORT_PAGESTYLE_H
