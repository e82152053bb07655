//===- FakeStreams.h - A GPU that is as lazy as it may be -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Stands in for libcuda, libcublasLt and libnccl, so that the CUDA runtime runs
// where there is no GPU. Device memory is host memory. Nothing that is enqueued
// happens before somebody asks for its result, and streams go on by no more
// than what is asked for: work that lacks an event it should have waited for
// finds its operands not yet there, or already overwritten. With
// PLAIT_FAKE_HASTY=1 urgent streams are the opposite: they do everything at
// once that they can.
//
// PLAIT_FAKE_LOSE=compute makes streams lose the events of urgent ones,
// PLAIT_FAKE_LOSE=urgent the other way round: what no program may survive.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_FAKE_FAKESTREAMS_H
#define PLAIT_TEST_UNIT_RUNTIME_FAKE_FAKESTREAMS_H

#include <chrono>
#include <cuda.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace plait::fake {

/// Does a piece of work; false when it cannot be done yet.
using Work = std::function<bool()>;

/// How much of the work of every stream of a recording something waits for.
using Clock = std::map<CUstream, uint64_t>;

/// The work of several streams, which goes on side by side when it is launched,
/// except where one waits for another.
struct Graph {
  struct Item {
    CUstream stream;
    Work work;      // or
    int mark = -1;  // a point that others may wait for, or
    int waits = -1; // a wait for one
  };

  std::vector<Item> items;
  int marks = 0;
  Clock recorded; // all of it
  bool ended = false;
  // What must not go before the recording, and later what was made of it, does.
  std::vector<std::shared_ptr<void>> users;
};

/// A use of an event.
struct Mark {
  bool reached = false;
  CUstream stream = nullptr;
  std::chrono::steady_clock::time_point when; // it was reached
  double gemms = 0;                           // gemmTime() of that
};

/// Of everything here.
std::recursive_mutex &lock();

/// Adds work to a stream, or to the graph that it is being recorded into.
CUresult enqueue(CUstream stream, Work work);

/// What the environment variable `name` says.
long setting(const char *name, long otherwise);

/// How many milliseconds the GEMMs and attention have taken that were done so
/// far, where the environment says how long each algorithm takes
/// (FakeCublasLt.cpp, HostAttention.cpp). Then events know no other time.
double &gemmTime();
constexpr char gemmsVariable[] = "PLAIT_FAKE_GEMMS";
constexpr char attentionVariable[] = "PLAIT_FAKE_ATTENTION";

/// Whether `stream` exists: a used one may be asked for, and none.
bool lives(CUstream stream);

/// Does what can be done of the work of all streams.
void advanceAll();

/// How many walked operations of NCCL's the context of a GPU has not ended.
int &inFlight(int gpu);

/// Whether [address, address + bytes) is inside one allocation.
bool allocated(const void *address, size_t bytes);

} // namespace plait::fake

struct CUstream_st {
  std::deque<plait::fake::Work> work;
  std::shared_ptr<plait::fake::Graph> recording; // null or ended: none
  plait::fake::Clock clock;                      // while it is being recorded
  bool advancing = false;
  bool urgent = false;
  int gpu = -1; // whose context it was made in

  bool records() const { return recording && !recording->ended; }
};

struct CUevent_st {
  std::shared_ptr<plait::fake::Mark> mark;
  std::shared_ptr<plait::fake::Graph> recording;
  plait::fake::Clock clock;
  CUstream stream = nullptr; // of its last use
  int recorded = -1;         // Graph::Item::mark
  int gpu = -1;
  bool timed = false;
};

struct CUgraph_st {
  std::shared_ptr<plait::fake::Graph> graph;
  std::vector<std::shared_ptr<void>> users;
};
struct CUgraphExec_st {
  std::shared_ptr<plait::fake::Graph> graph;
  std::vector<std::shared_ptr<void>> users;
  std::map<CUstream, CUstream> streams; // of the recording, and what runs them
};

#endif // PLAIT_TEST_UNIT_RUNTIME_FAKE_FAKESTREAMS_H
