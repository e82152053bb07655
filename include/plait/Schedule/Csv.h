//===- Csv.h - Schedules as PyTorch writes them -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The form of torch.distributed.pipelining (2.6 and later): a line a rank, a
// cell for each action, such as `0F0`, `2B1`, `1I3` and `1W3`: virtual stage,
// kind, microbatch. An empty cell is idle time. Unlike in Schedule.h's text
// form the number in front is the virtual stage, so that ranks, chunks,
// placement and microbatches follow from the file.
//
// What else PyTorch writes is read and has no effect: `0SEND_F1`,
// `0WAIT_SEND_F1` and their kind, `0UNSHARD`, `0RESHARD`, `0REDUCE_GRAD` and
// `0WAIT_REDUCE_GRAD` must name a stage of their line and a microbatch that
// there is. Where messages go, and when parameters are gathered
// and gradients reduced, follows from the work and from the compiler's options.
// The two parts of `(0F4;7B0)OVERLAP_F_B` run one after the other.
//
// What spreadsheets add is taken off: quotes around a cell, lines of empty
// cells at the end, the mark of UTF-8 at the beginning, line ends of other
// systems.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SCHEDULE_CSV_H
#define PLAIT_SCHEDULE_CSV_H

#include "plait/Schedule/Schedule.h"

namespace plait::schedule {

/// The work of `schedule`, without idle cells and without transfers: what
/// PyTorch calls compute-only, as its _load_csv reads it.
std::string printCsv(const Schedule &schedule);

/// A sound compute-only schedule without a name. Fails, with line, column (both
/// from 1; a column is a cell) and action, on a cell that is no action, on
/// stages placed otherwise than one of Placement, on work that is missing,
/// doubled or in front of what it depends on, and where ranks wait for each
/// other for ever.
Result<Schedule> parseCsv(std::string_view text);

/// The same of the text of a file, which messages name.
Result<Schedule> readCsv(const std::string &path);

} // namespace plait::schedule

#endif // PLAIT_SCHEDULE_CSV_H
