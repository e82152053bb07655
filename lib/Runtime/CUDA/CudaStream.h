//===- CudaStream.h - Work in order on a device -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_CUDASTREAM_H
#define PLAIT_LIB_RUNTIME_CUDA_CUDASTREAM_H

#include "Driver.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace plait::runtime {

/// One GPU as this process uses it: its primary context, held while the object
/// lives.
class CudaContext {
public:
  static Result<std::shared_ptr<CudaContext>> create(const Driver &driver,
                                                     int ordinal);
  ~CudaContext();

  /// Makes calls of this thread go to this GPU.
  Status use() const;
  /// Lets this GPU's kernels use the memory of `other`.
  Status accessPeer(const CudaContext &other) const;
  struct Memory {
    uint64_t available, total; // bytes
    uint64_t used() const { return total - available; }
  };
  /// Returns the memory of the whole GPU, whoever uses it.
  Result<Memory> memory() const;

  const Driver &driver;
  const int ordinal;
  std::string name;         // of the GPU, as the driver says
  int major = 0, minor = 0; // its compute capability
  int multiprocessors = 0;

  /// How many blocks of `threads` take `count` elements, each thread going on
  /// where the grid ends: some for every multiprocessor, and at least one.
  uint64_t blocksFor(int64_t count, int64_t threads) const;

  /// "GPU 0 (NVIDIA H100 80GB HBM3)", for messages.
  std::string describe() const;

private:
  CudaContext(const Driver &driver, int ordinal)
      : driver(driver), ordinal(ordinal) {}

  CUdevice device = 0;
  CUcontext context = nullptr;
};

/// A point in the work of a stream. Movable.
class CudaEvent {
public:
  CudaEvent() = default;
  /// `timed` ones know when they happened, at some cost.
  static Result<CudaEvent> create(const Driver &driver, bool timed = false);
  CudaEvent(CudaEvent &&other) noexcept
      : driver(other.driver), event(std::exchange(other.event, nullptr)) {}
  CudaEvent &operator=(CudaEvent &&other) noexcept {
    std::swap(driver, other.driver);
    std::swap(event, other.event);
    return *this;
  }
  ~CudaEvent();

  CUevent handle() const { return event; }
  /// Whether all is done that its last use covers.
  Result<bool> happened() const;

private:
  const Driver *driver = nullptr;
  CUevent event = nullptr;
};

/// A queue of work. Streams that may be recorded into one graph share a lock,
/// since graphs are not safe to change from several threads.
class CudaStream {
public:
  /// An urgent stream gets the GPU's next free units: others wait for it.
  enum class Urgent : bool { No, Yes };

  static Result<std::unique_ptr<CudaStream>>
  create(std::shared_ptr<CudaContext> context,
         std::shared_ptr<std::mutex> recording, Urgent urgent = Urgent::No);
  ~CudaStream();

  Status launch(CUfunction function, uint64_t blocks, unsigned threads,
                void **params);
  Status copy(std::byte *target, const std::byte *source, uint64_t bytes);
  /// `rows` runs of `bytes`, whose starts are a pitch apart.
  Status copyRows(std::byte *target, uint64_t targetPitch,
                  const std::byte *source, uint64_t sourcePitch, uint64_t bytes,
                  uint64_t rows);
  /// Copies `outer` times `middle` rows of `bytes`. Where they are is told in
  /// rows: an outer index is `outer` of them away, a middle one `middle`.
  template <typename Byte> struct Rows {
    Byte *data;
    int64_t outer, middle;
  };
  Status copyRows(const Rows<std::byte> &target,
                  const Rows<const std::byte> &source, uint64_t bytes,
                  int64_t outer, int64_t middle);
  Status fillZero(std::byte *target, uint64_t bytes);
  Status record(const CudaEvent &event);
  Status wait(CUevent event);
  /// Calls `enqueue()`, which adds work of a library to this stream.
  template <typename Enqueue> Status add(Enqueue enqueue) {
    std::lock_guard lock(*recording);
    return enqueue();
  }

  /// Whether all work is done.
  Result<bool> idle() const;
  Status synchronize() const;

  CUstream handle() const { return stream; }
  const std::shared_ptr<CudaContext> context;
  const Driver &driver;
  const std::shared_ptr<std::mutex> recording;

private:
  CudaStream(std::shared_ptr<CudaContext> context,
             std::shared_ptr<std::mutex> recording)
      : context(std::move(context)), driver(this->context->driver),
        recording(std::move(recording)) {}

  CUstream stream = nullptr;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CUDASTREAM_H
