//===- mpi_allreduce.cpp - All-reduce between processes -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// mpirun -n 8 plait-bench-mpi-allreduce: the time of an all-reduce of floats
// whose bits do not depend on how ranks are spread, beside that of
// MPI_Allreduce, which promises no order. They take turns, so that the machine
// is the same for both; a time is that of the slowest process.
//
//===----------------------------------------------------------------------===//

#include "MPI/MpiCommunicator.h"
#include "plait/Runtime/Rendezvous.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <mpi.h>
#include <numeric>

using namespace plait;
using namespace plait::runtime;

static constexpr int repetitions = 60;

/// Seconds of `work`, of the slowest process.
static double measure(const std::function<void()> &work) {
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  work();
  double mine = MPI_Wtime() - start, slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

static double medianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

static Status compare(Group &group, int64_t bytes, bool prints) {
  std::vector<float> input(bytes / sizeof(float), 1.5f), output(input.size());
  const CollectiveShape shape = {fb::DType::F32, 1, int64_t(input.size())};
  std::vector<double> ours, theirs;
  Status status = Status::success();
  for (int i = 0; i < repetitions && status.ok(); ++i) {
    ours.push_back(measure([&] {
      status = group.allReduce(reinterpret_cast<std::byte *>(input.data()),
                               reinterpret_cast<std::byte *>(output.data()),
                               shape, fb::Reduction::Sum);
    }));
    theirs.push_back(measure([&] {
      MPI_Allreduce(input.data(), output.data(), int(input.size()), MPI_FLOAT,
                    MPI_SUM, MPI_COMM_WORLD);
    }));
  }
  double mine = medianOf(ours), other = medianOf(theirs);
  if (prints)
    std::printf("%9lld bytes: plait %8.3f ms, MPI_Allreduce %8.3f ms, "
                "ratio %.2f\n",
                static_cast<long long>(bytes), mine * 1e3, other * 1e3,
                mine / other);
  return status;
}

static Status run() {
  constexpr std::chrono::seconds timeLimit(60);
  auto processes = Rendezvous::join(timeLimit);
  if (!processes.ok())
    return processes.status();
  if (!*processes || !(*processes)->engine())
    return Status::failure("start this with mpirun -n 2 or more");
  const ProcessPlace &place = (*processes)->place();
  Topology topology;
  topology.ranks = place.count;
  topology.groups.emplace_back(place.count);
  std::iota(topology.groups[0].begin(), topology.groups[0].end(), 0);
  (*processes)->spread(place.count);
  auto communicators = createMpiCommunicators(topology, **processes, timeLimit);
  if (!communicators.ok())
    return communicators.status();
  auto group = communicators->front()->join(topology.groups[0]);
  if (!group.ok())
    return group.status();
  for (int64_t bytes :
       {int64_t(1) << 12, int64_t(1) << 16, int64_t(1) << 20, int64_t(1) << 24})
    PLAIT_RETURN_IF_ERROR(compare(**group, bytes, place.index == 0));
  return Status::success();
}

int main(int argc, char **argv) {
  int provided = 0;
  // Two threads call MPI here: this one and the engine's.
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  Status status = provided == MPI_THREAD_MULTIPLE
                      ? run()
                      : Status::failure("this MPI lacks MPI_THREAD_MULTIPLE");
  if (!status.ok())
    std::fprintf(stderr, "error: %s\n", status.message().c_str());
  MPI_Finalize();
  return status.ok() ? 0 : 1;
}
