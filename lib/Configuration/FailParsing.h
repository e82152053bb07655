//===- FailParsing.h - Refusal of a field's text ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Says what is wrong with a text that is no value of a field. Private to
// lib/Configuration.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CONFIGURATION_FAILPARSING_H
#define PLAIT_LIB_CONFIGURATION_FAILPARSING_H

#include "plait/Support/Status.h"

#include <string>
#include <string_view>

namespace plait {

/// Fails with "zero is "4", expected 0 to 3".
inline Status failParsing(std::string_view name, std::string_view text,
                          const std::string &expected) {
  return fail(name, " is \"", text, "\", expected ", expected);
}

} // namespace plait

#endif // PLAIT_LIB_CONFIGURATION_FAILPARSING_H
