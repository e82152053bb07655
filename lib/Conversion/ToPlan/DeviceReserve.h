//===- DeviceReserve.h - What a GPU needs beside its arena ------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CONVERSION_TOPLAN_DEVICERESERVE_H
#define PLAIT_LIB_CONVERSION_TOPLAN_DEVICERESERVE_H

#include "plait/Plan/Plan_generated.h"

#include <cstdint>

namespace plait {

/// Returns the bytes that a GPU needs beside the arena of a rank of `plan`,
/// whose programs are complete: `reserved`, or more where its communicators
/// take more.
uint64_t findReserve(const plan::fb::PlanT &plan, uint64_t reserved);

} // namespace plait

#endif // PLAIT_LIB_CONVERSION_TOPLAN_DEVICERESERVE_H
