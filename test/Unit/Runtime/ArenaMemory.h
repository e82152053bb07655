//===- ArenaMemory.h - The arena of a rank in tests -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_ARENAMEMORY_H
#define PLAIT_TEST_UNIT_RUNTIME_ARENAMEMORY_H

#include "plait/Runtime/Device.h"

#include <cstring>
#include <gtest/gtest.h>
#include <span>
#include <vector>

namespace plait::test {

inline constexpr uint64_t arenaBytes = 1 << 23;

/// The arena of a rank, handed out from its beginning.
class Memory {
public:
  explicit Memory(runtime::Device &device) : device(device) {}

  template <typename T> std::span<std::byte> put(const std::vector<T> &values) {
    std::span<std::byte> place(device.arena() + used,
                               values.size() * sizeof(T));
    used += (place.size() + 255) / 256 * 256;
    EXPECT_LE(used, arenaBytes);
    set(place, values);
    return place;
  }
  template <typename T>
  void set(std::span<std::byte> place, const std::vector<T> &values) {
    Status status = device.write(place.data() - device.arena(),
                                 std::as_bytes(std::span(values)));
    EXPECT_TRUE(status.ok()) << status.message();
  }
  std::span<std::byte> room(int64_t floats) {
    return put(std::vector<float>(floats, -1));
  }

  template <typename T = float>
  std::vector<T> get(std::span<const std::byte> place) {
    std::vector<T> values(place.size() / sizeof(T));
    Status status = device.read(place.data() - device.arena(),
                                std::as_writable_bytes(std::span(values)));
    EXPECT_TRUE(status.ok()) << status.message();
    return values;
  }

private:
  runtime::Device &device;
  uint64_t used = 0;
};

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_RUNTIME_ARENAMEMORY_H
