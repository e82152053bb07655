//===- HostNode.h - Cores next to a GPU -------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_HOSTNODE_H
#define PLAIT_LIB_RUNTIME_CUDA_HOSTNODE_H

#include "Driver.h"

#include <optional>
#include <sched.h>
#include <string>

namespace plait::runtime {

/// Reads a list of cores as Linux writes it, "0-27,56-83"; nothing where it is
/// no such list.
std::optional<cpu_set_t> parseCores(const std::string &list);

/// Has the thread that makes one run on the cores of the memory node (NUMA)
/// that a GPU is attached to, for as long as the object lives: memory of the
/// host that it allocates and writes first lies in that node, and copies cross
/// no link between processors. Of cores that the thread may not use none is
/// taken; where that leaves none, or nobody knows the node, nothing changes.
class OnHostNode {
public:
  OnHostNode(const Driver &driver, int ordinal);
  OnHostNode(const OnHostNode &) = delete;
  OnHostNode &operator=(const OnHostNode &) = delete;
  ~OnHostNode();

  /// Leaves the thread there, with those that it starts from now on.
  void keep() { before.reset(); }

private:
  std::optional<cpu_set_t> before; // what to go back to; nothing: stay
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_HOSTNODE_H
