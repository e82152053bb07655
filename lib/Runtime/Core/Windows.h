//===- Windows.h - Parameters to and from devices, bit by bit ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a rank holds may be most of its machine's memory. So loading and saving
// look at it through a window of a few MiB, which moves over the rank's block
// once.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_WINDOWS_H
#define PLAIT_LIB_RUNTIME_CORE_WINDOWS_H

#include "plait/Runtime/Device.h"
#include "plait/Runtime/Slices.h"
#include "plait/Support/Status.h"

#include <functional>
#include <span>

namespace plait::runtime {

/// The elements of a window: 4 MiB.
constexpr int64_t windowElements = 1 << 20;

/// Gives elements [begin, begin + target.size()) of a file tensor.
using ElementSource =
    std::function<Status(int64_t begin, std::span<float> target)>;
/// Takes them.
using ElementSink =
    std::function<Status(int64_t begin, std::span<const float> elements)>;
/// Takes a window: elements of a part from `begin` on, padding included, which
/// is zero.
using WindowSink =
    std::function<Status(int64_t begin, std::span<const float> window)>;

/// Gives `sink` the elements of `piece`, in their order in the rank's block,
/// which is their order in the file tensor.
Status readElements(Device &device, const plan::RankGrid &mesh, uint32_t rank,
                    const fb::Parameter &parameter, const Piece &piece,
                    const ElementSink &sink);

/// The reverse: gives `sink` windows filled by `source`. Parts without elements
/// are left out.
Status fillWindows(const plan::RankGrid &mesh, uint32_t rank,
                   const fb::Parameter &parameter, const Piece &piece,
                   const ElementSource &source, const WindowSink &sink);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_WINDOWS_H
