//===- Habits.h - What another program keeps --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A profile says what this compiler's plans compute and keep. Another program
// runs the same model with other kernels: its loss keeps logits in another
// form, and what it calls selective recomputation saves other tensors. Both are
// facts of the program (Framework.h), and rewrites of the profile's blocks.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_HABITS_H
#define PLAIT_PLANNER_HABITS_H

#include "plait/Planner/Framework.h"
#include "plait/Planner/Work.h"

namespace plait::planner {

/// Returns the work as `framework` does it, in `precision`. plait's own is
/// returned as it is.
Work adoptHabits(Work work, const Framework &framework, Precision precision);

} // namespace plait::planner

#endif // PLAIT_PLANNER_HABITS_H
