//===- Streams.h - Waits between the streams of a rank ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rank's step is a list of operations, in the order of the plan. Run one
// after the other they are right; here they are dealt to the streams of a
// device, and an operation waits for an earlier one of another stream only if
// both use the same bytes and one of them writes.
//
// Everything is found out at load time. Waits that follow from others are left
// out, by vector clocks (C. Fidge, "Timestamps in message-passing systems that
// preserve the partial ordering", 1988): a stream knows of every other stream
// how far it had come when the latest event was recorded that the stream waited
// for.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_STREAMS_H
#define PLAIT_PLAN_STREAMS_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Uses.h"

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace plait::plan {

/// The operations of a step and their events.
struct StreamSchedule {
  static constexpr uint32_t none = UINT32_MAX;

  struct Operation {
    uint32_t stream;
    /// The events in `waits` that the stream waits for before the operation.
    uint32_t firstWait, endWait;
    /// The event that is recorded after the operation, or `none`.
    uint32_t event = none;
  };

  std::vector<Operation> operations;
  std::vector<uint32_t> waits;
  uint32_t events = 0; // all are below

  std::span<const uint32_t> waitsOf(uint32_t operation) const {
    const Operation &which = operations[operation];
    return std::span(waits).subspan(which.firstWait,
                                    which.endWait - which.firstWait);
  }
};

/// Calls `visit` with each two operations of which the second follows the first
/// in its stream or waits for it directly.
void forEachWait(const StreamSchedule &schedule, uint32_t streams,
                 const std::function<void(uint32_t, uint32_t)> &visit);

class StreamPlanner {
public:
  explicit StreamPlanner(uint32_t streams)
      : streams(streams), seen(streams, Clock(streams, never)) {}

  /// The next operation of the step.
  void add(uint32_t stream, std::span<const ByteRange> uses);

  /// The schedule of all that was added. Events are used again where nothing
  /// waits for them any more.
  StreamSchedule finish() const;

private:
  /// An operation, or `never`.
  using Index = int64_t;
  static constexpr Index never = -1;
  /// The last operation of each stream that is known to be over.
  using Clock = std::vector<Index>;

  /// Bytes, up to the next entry of the map, that have the same history.
  struct Span {
    Index writer = never;
    Clock readers; // of each stream the last one since; empty: none
  };
  struct Added {
    uint32_t stream;
    std::vector<Index> waits;
  };

  std::map<uint64_t, Span>::iterator splitAt(uint64_t offset);
  /// Whom an operation waits for that uses `range`; and notes that it does.
  void use(const ByteRange &range, Index operation, uint32_t stream,
           Clock &needed);

  uint32_t streams;
  std::map<uint64_t, Span> spans; // by their first byte
  std::vector<Clock> seen;        // by stream
  std::vector<Clock> clocks;      // by operation, when it is over
  std::vector<Added> added;
};

/// The streams where the operations of a program happen.
struct StreamChoice {
  std::vector<uint32_t> transfers;          // by action; 0 for others
  std::vector<std::vector<uint32_t>> steps; // by function and step
  /// See Communicator::sendsInStream.
  bool sendsInStream = false;

  /// One more than the largest stream.
  uint32_t streams() const;
};

/// One operation of a step of training: a transfer of a program, or a step of a
/// function that it calls.
struct Operation {
  uint32_t index;  // among all of the program
  uint32_t action; // whose it is
  uint32_t step;   // of the action's function; 0 of a transfer

  /// Null for a transfer.
  const fb::Step *get(const fb::Program &program) const;
  uint32_t streamIn(const fb::Program &program,
                    const StreamChoice &choice) const;
};

/// Names an action and its microbatch in traces: "Forward 3".
std::string nameOf(const fb::Action &action);
/// Names a collective, or the kind of another step.
std::string nameOf(const fb::Step &step);

/// Calls `visit` with all operations, in the order of the program's actions.
void forEachOperation(const fb::Program &program,
                      const std::function<void(const Operation &)> &visit);
uint32_t countOperations(const fb::Program &program);

/// Which of them wait for which, by the bytes they use. `program` has passed
/// the plan checker.
StreamSchedule scheduleStreams(const fb::Program &program, const RankGrid &mesh,
                               const StreamChoice &choice);

/// Puts the kernels between the collectives of reduce and gather functions into
/// the streams of those: what is done to a gradient before and after it is
/// summed, and to a parameter before it is gathered, need not wait for other
/// computing. One right behind a collective is in that
/// one's stream, another one in that of the next.
void placeKernels(StreamChoice &choice, const fb::Program &program);

/// Puts what sites compute before a step, to send it beside the step, into the
/// stream in which they send it.
void placeSums(StreamChoice &choice, const fb::Program &program);

/// Chooses where the operations of a program happen on its plan's device. On a
/// GPU, as the CUDA backend has it, there are a stream for computing, 0, one
/// for each group of ranks with collectives (see placeKernels), one for each
/// route, a neighbour and a direction, and one each for copies to the host and
/// from there. On a processor stream 1 has what isBeside(), and 0 the rest.
StreamChoice chooseStreams(const fb::Plan &plan, const fb::Program &program);

/// Whether a processor performs `step` in a stream of its own: what replicas
/// exchange, which are gradients and, where they are divided, parameters, and
/// what sites do that take it steps later. Other collectives are needed at
/// once.
bool isBeside(const fb::Plan &plan, const fb::CollectiveStep &step);

/// Whether ranks of `plan` can communicate beside computing.
bool hasStreams(const fb::Plan &plan);
/// Whether they do: GPUs always, processors where `wanted`.
bool overlaps(const fb::Plan &plan, bool wanted);

} // namespace plait::plan

#endif // PLAIT_PLAN_STREAMS_H
