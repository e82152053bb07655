//===- Windows.cpp - Parameters to and from devices, bit by bit -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Moves the elements of a piece between an arena and tensors of a file, a
// window of 4 MiB at a time: few large transfers to and from the device, and
// memory that does not grow with the tensor. Runs (Slices.h) ascend in the
// block, so that a window moves forward only and each of its elements is
// transferred once.
//
//===----------------------------------------------------------------------===//

#include "Windows.h"

#include "plait/Runtime/Weights.h"
#include "plait/Support/BFloat16.h"

#include <algorithm>
#include <vector>

using namespace plait;
using namespace plait::runtime;

namespace {

/// A window over a part, which moves forward only. Positions count elements of
/// the part, which is what the rank has of its block.
class Window {
public:
  explicit Window(const plan::Part &part) : part(part) {}

  bool contains(int64_t local) const {
    return local >= begin && local < begin + int64_t(elements.size());
  }
  /// Lets the window begin at `local`, with any elements. The part's end may
  /// cut it short.
  void moveTo(int64_t local) {
    begin = local;
    elements.resize(std::min(windowElements, part.count - local));
  }
  /// Returns what the window has from `local` on, at most `most` elements.
  std::span<float> from(int64_t local, int64_t most) {
    int64_t skipped = local - begin;
    return std::span(elements).subspan(
        skipped, std::min<int64_t>(most, elements.size() - skipped));
  }

  int64_t begin = 0; // in the part
  std::vector<float> elements;

private:
  plan::Part part;
};

/// Walks the runs of a piece; `enter(local)` makes the window contain an
/// element, `use(file index, elements)` gets them. A run may be longer than a
/// window and a window may hold many runs; each turn of the loop takes what
/// both have in common. After a failure the enumeration goes on, for it cannot
/// be stopped, but nothing is done any more.
template <typename Enter, typename Use>
Status walk(const plan::RankGrid &mesh, uint32_t rank,
            const fb::Parameter &parameter, const Piece &piece, Window &window,
            Enter enter, Use use) {
  Status status = Status::success();
  forEachFileRun(mesh, rank, parameter, piece.splits, [&](const Run &whole) {
    Run run = clip(whole, piece.part);
    while (run.count && status.ok()) {
      if (!window.contains(run.local))
        status = enter(run.local);
      if (!status.ok())
        return;
      std::span<float> elements = window.from(run.local, run.count);
      status = use(run.global, elements);
      int64_t done = elements.size();
      run = {run.local + done, run.global + done, run.count - done};
    }
  });
  return status;
}

} // namespace

Status runtime::readPiece(Device &device, const Piece &piece, int64_t begin,
                          std::span<float> target) {
  uint64_t offset = piece.offset + begin * piece.elementBytes();
  if (!piece.isRounded)
    return device.read(offset, std::as_writable_bytes(target));
  std::vector<BFloat16> rounded(target.size());
  PLAIT_RETURN_IF_ERROR(
      device.read(offset, std::as_writable_bytes(std::span(rounded))));
  std::copy(rounded.begin(), rounded.end(), target.begin());
  return Status::success();
}

/// Windows begin where a run does, so that padding before it is not read.
Status runtime::readElements(Device &device, const plan::RankGrid &mesh,
                             uint32_t rank, const fb::Parameter &parameter,
                             const Piece &piece, const ElementSink &sink) {
  Window window(piece.part);
  auto enter = [&](int64_t local) {
    window.moveTo(local);
    return readPiece(device, piece, local, window.elements);
  };
  return walk(mesh, rank, parameter, piece, window, enter, sink);
}

/// A window is handed over when the next one begins, and the last one at the
/// end. What no run covers stays zero: padding in between. Padding may lie in
/// no window at all, and stays as it is: zero from the beginning.
Status runtime::fillWindows(const plan::RankGrid &mesh, uint32_t rank,
                            const fb::Parameter &parameter, const Piece &piece,
                            const ElementSource &source,
                            const WindowSink &sink) {
  Window window(piece.part);
  auto flush = [&] {
    return window.elements.empty() ? Status::success()
                                   : sink(window.begin, window.elements);
  };
  auto enter = [&](int64_t local) {
    PLAIT_RETURN_IF_ERROR(flush());
    window.moveTo(local);
    std::fill(window.elements.begin(), window.elements.end(), 0);
    return Status::success();
  };
  PLAIT_RETURN_IF_ERROR(
      walk(mesh, rank, parameter, piece, window, enter, source));
  return flush();
}
