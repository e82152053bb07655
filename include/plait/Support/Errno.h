//===- Errno.h - Codes of what the system refuses ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_ERRNO_H
#define PLAIT_SUPPORT_ERRNO_H

#include "plait/Support/Status.h"

#include <cerrno>

namespace plait {

/// Returns the code of an output that fails with `error`, a value of errno.
inline Code getWriteCode(int error) {
  return error == ENOSPC || error == EDQUOT ? Code::DiskFull
                                            : Code::CannotWrite;
}

} // namespace plait

#endif // PLAIT_SUPPORT_ERRNO_H
