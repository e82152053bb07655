//===- Version.h - Versions of plait and its libraries ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_VERSION_H
#define PLAIT_RUNTIME_VERSION_H

#include <string>

namespace plait::runtime {

/// Lines for people: the version of plait and of the libraries for processors,
/// and those for GPUs, where it was built for them.
std::string describeLibraries();

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_VERSION_H
