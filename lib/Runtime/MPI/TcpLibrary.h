//===- TcpLibrary.h - MPI interface over TCP --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For processes that no launcher of MPI has started. Two of them are connected
// where the plan says that they talk, and else from when one first means to: a
// process has as many descriptors as it has partners, however many processes
// there are. A message is a header and its bytes. One that nobody waits for yet
// is put aside, since those behind it may be waited for.
//
// That a process fails concerns all. The warning goes from each one to those
// that it is connected with, and answers back the same way.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_MPI_TCPLIBRARY_H
#define PLAIT_LIB_RUNTIME_MPI_TCPLIBRARY_H

#include "Library.h"
#include "plait/Runtime/Rendezvous.h"

#include <chrono>
#include <memory>

namespace plait::runtime {

/// All processes call this. `peers` are those that this one will talk to, which
/// name it as well. `address` is that of this process towards others, empty
/// where it is on the host of process 0, which they know as `firstAddress`.
/// Sends and receives only. The network is trusted.
Result<std::unique_ptr<MpiLibrary>>
connectOverTcp(Rendezvous &processes, std::span<const uint32_t> peers,
               const std::string &address, const std::string &firstAddress,
               std::chrono::milliseconds timeLimit);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_MPI_TCPLIBRARY_H
