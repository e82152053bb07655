//===- Family.h - Plans of one model for several sizes ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_SUPERVISOR_FAMILY_H
#define PLAIT_LIB_RUNTIME_SUPERVISOR_FAMILY_H

#include "plait/Plan/Container.h"

#include <string>
#include <vector>

namespace plait::runtime {

class PlanFamily {
public:
  struct Member {
    std::string path;
    uint32_t ranks;
    std::string mesh; // "pp=2,dp=4"
  };

  /// The plan at `path`, and those beside it that are called as plaitc --also
  /// calls them. Fails where one of them does not train the same model on the
  /// same batch with the same optimizer.
  static Result<PlanFamily> open(const std::string &path);

  /// The largest for at most `slots` ranks; of two the first one. Null: none.
  const Member *find(uint64_t slots) const;
  const Member &main() const { return members.front(); }
  const Member &smallest() const;
  /// Fails where the newest whole checkpoint in `directory` is not the model's.
  Status checkFits(const std::string &directory) const;

private:
  explicit PlanFamily(plan::PlanFile file) : first(std::move(file)) {}
  Status add(const std::string &path, const plan::PlanFile &file);

  plan::PlanFile first;
  std::vector<Member> members; // that of `first`, then by ranks
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_SUPERVISOR_FAMILY_H
