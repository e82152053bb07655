//===- Quantities.h - Numbers with their units ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_QUANTITIES_H
#define PLAIT_SUPPORT_QUANTITIES_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>

namespace plait {

/// "1 step", "2 steps".
inline std::string countOf(uint64_t count, const std::string &one,
                           const std::string &ending = "s") {
  return std::to_string(count) + " " + one + (count == 1 ? "" : ending);
}

/// "74.8 GB": three digits, in powers of 1000, as makers of memory count.
inline std::string describeBytes(uint64_t bytes) {
  constexpr const char *units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000)
    return std::to_string(bytes) + " B";
  double value = double(bytes) / 1000;
  size_t unit = 0;
  // What would be rounded to 1000 is 1.00 of the next.
  for (; value >= 999.5 && unit + 1 < std::size(units); ++unit)
    value /= 1000;
  int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f %s", decimals, value, units[unit]);
  return text;
}

} // namespace plait

#endif // PLAIT_SUPPORT_QUANTITIES_H
