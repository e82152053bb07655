//===- StepGraphs.cpp - A step as one CUDA graph --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One CUDA graph for all ranks of a process that share GPU memory. Their
// streams wait for each other's events, and a recorded event can be waited for
// only inside of the same recording. So the stream of rank 0, the leader,
// begins and ends it, the streams of the others join by waiting for an event of
// the leader, and the leader launches the graph for all.
//
// Every step of that is a meeting of the ranks' threads, since an event must
// have been recorded before another stream can wait for it.
//
//===----------------------------------------------------------------------===//

#include "StepGraphs.h"

#include "CudaGraph.h"

using namespace plait;
using namespace plait::runtime;

namespace {

/// The state that the ranks of one graph share.
struct Recording {
  Recording(size_t ranks, CudaStream &leader,
            std::shared_ptr<Patience> patience)
      : patience(std::move(patience)), meeting(ranks), context(leader.context),
        graph(leader) {}

  Status barrier() { return runtime::barrier(meeting, *patience); }

  std::shared_ptr<Patience> patience;
  Meeting<CUevent> meeting; // the event after each rank's work
  std::shared_ptr<CudaContext> context;
  CudaEvent leader; // what the others' streams wait for; before its context
  CudaGraph graph;
};

/// One rank's view of the common recording. All ranks make the same calls, each
/// on its own thread.
class SharedStepGraph : public StepGraph {
public:
  SharedStepGraph(std::shared_ptr<Recording> recording, size_t index,
                  CudaStream &stream, CudaEvent event)
      : recording(std::move(recording)), index(index), stream(stream),
        event(std::move(event)) {}
  /// While the leader's stream is there.
  ~SharedStepGraph() override {
    if (leads())
      recording->graph.drop();
  }

  /// The leader's stream has to be recording before another one waits for it.
  Status begin() override {
    if (leads())
      PLAIT_RETURN_IF_ERROR(recording->graph.begin());
    // A stream that waits for an event of a recorded stream is recorded too.
    return follow();
  }

  /// The other ranks must not enqueue anything before the leader has ended the
  /// recording: it would become a part of it.
  Status end() override {
    PLAIT_RETURN_IF_ERROR(gather());
    if (leads())
      PLAIT_RETURN_IF_ERROR(recording->graph.end());
    return recording->barrier();
  }

  /// Before and after the graph the streams of the ranks are live, so that they
  /// are tied to it by ordinary events.
  Status replay() override {
    // The inputs of this step are written on the stream of each rank.
    PLAIT_RETURN_IF_ERROR(gather());
    if (leads())
      PLAIT_RETURN_IF_ERROR(recording->graph.launch());
    return follow();
  }

private:
  bool leads() const { return index == 0; }

  /// The leader's stream waits for what all have enqueued.
  /// The entries are read by the leader alone, behind the barrier, and written
  /// again after another one.
  Status gather() {
    PLAIT_RETURN_IF_ERROR(stream.record(event));
    recording->meeting.entries[index] = event.handle();
    PLAIT_RETURN_IF_ERROR(recording->barrier());
    if (leads())
      for (size_t i = 1; i < recording->meeting.entries.size(); ++i)
        PLAIT_RETURN_IF_ERROR(stream.wait(recording->meeting.entries[i]));
    return Status::success();
  }

  /// All streams wait for what the leader has enqueued.
  /// The second barrier keeps the leader from recording its event again while
  /// others have not yet waited for it.
  Status follow() {
    if (leads())
      PLAIT_RETURN_IF_ERROR(stream.record(recording->leader));
    PLAIT_RETURN_IF_ERROR(recording->barrier());
    if (!leads())
      PLAIT_RETURN_IF_ERROR(stream.wait(recording->leader.handle()));
    return recording->barrier();
  }

  std::shared_ptr<Recording> recording;
  size_t index;
  CudaStream &stream;
  CudaEvent event;
};

} // namespace

/// The event of each rank is made in the context of its GPU.
Result<std::vector<std::unique_ptr<StepGraph>>>
runtime::createStepGraphs(std::span<CudaStream *const> streams,
                          std::shared_ptr<Patience> patience) {
  auto recording = std::make_shared<Recording>(streams.size(), *streams.front(),
                                               std::move(patience));
  std::vector<std::unique_ptr<StepGraph>> result;
  for (size_t i = 0; i < streams.size(); ++i) {
    PLAIT_RETURN_IF_ERROR(streams[i]->context->use());
    auto event = CudaEvent::create(streams[i]->driver);
    if (!event.ok())
      return event.status();
    result.push_back(std::make_unique<SharedStepGraph>(
        recording, i, *streams[i], std::move(*event)));
  }
  PLAIT_RETURN_IF_ERROR(recording->context->use());
  auto leader = CudaEvent::create(recording->context->driver);
  if (!leader.ok())
    return leader.status();
  recording->leader = std::move(*leader);
  return result;
}
