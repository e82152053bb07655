//===- TcpLibrary.h - What is asked of MPI, over TCP ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For processes that no launcher of MPI has started: each is connected to each
// other one. A message is a header and its bytes. One that nobody waits for yet
// is put aside, since those behind it may be waited for.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_MPI_TCPLIBRARY_H
#define PLAIT_LIB_RUNTIME_MPI_TCPLIBRARY_H

#include "Library.h"
#include "plait/Runtime/Rendezvous.h"

#include <chrono>
#include <memory>

namespace plait::runtime {

/// Connects all processes with each other; all of them call this. `address` is
/// that of this process towards others, empty where it is on the host of
/// process 0, which they know as `firstAddress`. Sends and receives only. Needs
/// a descriptor for each process; the network is trusted.
Result<std::unique_ptr<MpiLibrary>>
connectOverTcp(Rendezvous &processes, const std::string &address,
               const std::string &firstAddress,
               std::chrono::milliseconds timeLimit);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_MPI_TCPLIBRARY_H
