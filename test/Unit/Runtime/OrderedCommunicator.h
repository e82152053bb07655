//===- OrderedCommunicator.h - A communicator without streams ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Communication that takes its place among all calls of a device, as tests
// want it: the streams wait for each other around every call.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_ORDEREDCOMMUNICATOR_H
#define PLAIT_TEST_UNIT_RUNTIME_ORDEREDCOMMUNICATOR_H

#include "plait/Runtime/Communicator.h"
#include "plait/Runtime/Device.h"

#include <memory>

namespace plait::runtime {

/// Calls `call` with the streams of `device` in one row with it.
template <typename Call> Status inOrder(Device &device, Call call) {
  PLAIT_RETURN_IF_ERROR(device.fork());
  PLAIT_RETURN_IF_ERROR(call());
  return device.join();
}

/// A group whose collectives take their place among all calls of the device.
class OrderedGroup : public Group {
public:
  OrderedGroup(std::unique_ptr<Group> group, Device &device)
      : group(std::move(group)), device(device) {}

  Status allReduce(const std::byte *input, std::byte *output,
                   const CollectiveShape &shape,
                   fb::Reduction reduction) override {
    return inOrder(device, [&] {
      return group->allReduce(input, output, shape, reduction);
    });
  }
  Status reduceScatter(const std::byte *input, std::byte *output,
                       const CollectiveShape &shape,
                       fb::Reduction reduction) override {
    return inOrder(device, [&] {
      return group->reduceScatter(input, output, shape, reduction);
    });
  }
  Status allGather(const std::byte *input, std::byte *output,
                   const CollectiveShape &shape) override {
    return inOrder(device,
                   [&] { return group->allGather(input, output, shape); });
  }
  Status allToAll(const std::byte *input, std::byte *output,
                  const CollectiveShape &shape) override {
    return inOrder(device,
                   [&] { return group->allToAll(input, output, shape); });
  }
  Status moveRows(const std::byte *input, std::byte *output,
                  const CollectiveShape &shape,
                  const RowChoice &choice) override {
    return inOrder(
        device, [&] { return group->moveRows(input, output, shape, choice); });
  }

private:
  std::unique_ptr<Group> group;
  Device &device;
};

/// The same for a communicator.
class OrderedCommunicator {
public:
  OrderedCommunicator(Communicator &communicator, Device &device)
      : communicator(communicator), device(device) {}

  Result<std::unique_ptr<Group>> join(std::span<const uint32_t> ranks) {
    auto group = communicator.join(ranks);
    if (!group.ok())
      return group;
    return std::unique_ptr<Group>(
        std::make_unique<OrderedGroup>(std::move(*group), device));
  }
  Status post(uint32_t id, uint32_t target, std::span<const std::byte> bytes) {
    PLAIT_RETURN_IF_ERROR(device.fork());
    // Nothing waits for a send before awaitReceipt().
    return communicator.post(id, target, bytes);
  }
  Status receive(uint32_t id, uint32_t source, std::span<std::byte> bytes) {
    return inOrder(device,
                   [&] { return communicator.receive(id, source, bytes); });
  }
  Status awaitReceipt(uint32_t id, uint32_t target) {
    return inOrder(device,
                   [&] { return communicator.awaitReceipt(id, target); });
  }
  Status finish() { return communicator.finish(); }
  void abort() { communicator.abort(); }

private:
  Communicator &communicator;
  Device &device;
};

} // namespace plait::runtime

#endif // PLAIT_TEST_UNIT_RUNTIME_ORDEREDCOMMUNICATOR_H
