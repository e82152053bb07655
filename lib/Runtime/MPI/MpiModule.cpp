//===- Module.cpp - The module that calls MPI -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The only file that includes mpi.h. It makes a shared object of its own, which
// MpiRendezvous.cpp opens, and uses nothing of the runtime but headers.
// Requests are kept in one list that MPI_Testsome is asked about: nothing here
// blocks between start() and finish(), for the engine has to notice failures
// meanwhile.
//
//===----------------------------------------------------------------------===//

#include "Library.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mpi.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

namespace {

/// MPI_ERRORS_RETURN makes calls return instead of ending the job.
Status check(int code, const char *call) {
  if (code == MPI_SUCCESS)
    return Status::success();
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return fail(call, ": ", std::string(text, length));
}

/// Whether mpirun has started all processes on this host.
bool isOnOneHost() {
  const char *here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const char *all = std::getenv("OMPI_COMM_WORLD_SIZE");
  return here && all && std::strcmp(here, all) == 0;
}

/// A datatype, freed at the end of its scope: transfers keep what they need.
class Type {
public:
  /// That of so many bytes, which may be more than an int counts. Blocks of 1
  /// GiB and a rest.
  explicit Type(int64_t bytes) {
    constexpr int64_t block = 1 << 30;
    if (bytes < block) {
      MPI_Type_contiguous(int(bytes), MPI_BYTE, &handle);
      return;
    }
    Type whole(block);
    int counts[] = {int(bytes / block), int(bytes % block)};
    MPI_Aint places[] = {0, bytes / block * block};
    MPI_Datatype types[] = {whole.handle, MPI_BYTE};
    MPI_Type_create_struct(2, counts, places, types, &handle);
  }
  Type(const Type &) = delete;
  ~Type() { MPI_Type_free(&handle); }

  /// So many of the type, `stride` bytes apart: rows of a matrix, then planes
  /// of rows.
  void repeat(int64_t count, int64_t stride) {
    if (count == 1)
      return;
    MPI_Datatype inner = handle;
    MPI_Type_create_hvector(int(count), 1, stride, inner, &handle);
    MPI_Type_free(&inner);
  }
  /// Only committed types may be sent.
  MPI_Datatype commit() {
    MPI_Type_commit(&handle);
    return handle;
  }

private:
  MPI_Datatype handle = MPI_DATATYPE_NULL;
};

/// Joins rows and planes that follow each other without a gap. Contiguous
/// memory is what MPIs move fastest, without packing.
Region simplify(Region region) {
  if (region.rows > 1 && region.rowStride == region.bytes) {
    region.bytes *= region.rows;
    region.rows = 1;
  }
  if (region.planes > 1 && region.rows == 1 &&
      region.planeStride == region.bytes) {
    region.bytes *= region.planes;
    region.planes = 1;
  }
  return region;
}

/// Each channel has a communicator, so that tags of different channels never
/// meet. `all` carries warnings alone.
class Library : public MpiLibrary {
public:
  Result<World> start() override;
  Status begin(const MpiTransfer &transfer, void *cookie) override;
  Status poll(std::vector<void *> &finished) override;
  void warn() override;
  void answer(uint32_t peer) override;
  Status readNotices(Notices &notices) override;
  void finish() override;

private:
  Status connect(World &world);
  Status findHosts(World &world);
  Status meetHost(World &world);
  Status countProcessors(World &world, MPI_Comm host);
  Status findNeighbour(World &world, MPI_Comm host);
  Status listen();
  Status transfer(const MpiTransfer &transfer, MPI_Request &request);
  void notify(uint32_t peer, int tag);

  static constexpr int warningTag = 0, answerTag = 1; // on `all`

  bool isOurs = true; // MPI was initialised here
  uint32_t index = 0, count = 1;
  MPI_Comm all = MPI_COMM_NULL; // in the order of indices; for notices
  MPI_Comm comms[mpiChannels];
  std::vector<MPI_Request> requests;     // of what has begun
  std::vector<void *> cookies;           // likewise
  std::vector<int> indices;              // scratch
  MPI_Request notice = MPI_REQUEST_NULL; // the next one
  std::vector<MPI_Request> notices;      // sent
};

/// 1. Initialise MPI, unless whoever embeds this has; then it is left running
///    at the end, too.
/// 2. Order the processes by host, and connect them in this order.
/// 3. Wait for the first notice from now on.
Result<MpiLibrary::World> Library::start() {
  // 1. Whose MPI is it?
  int isInitialized = 0;
  MPI_Initialized(&isInitialized);
  isOurs = !isInitialized;
  if (isOurs) {
    // What Open MPI itself waits for, it waits for actively.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", /*overwrite=*/0);
    // Within a host nothing goes through a network, whose libraries would take
    // as long to load as all the rest of MPI.
    if (isOnOneHost())
      setenv("OMPI_MCA_pml", "ob1", /*overwrite=*/0);
    int provided = 0;
    PLAIT_RETURN_IF_ERROR(
        check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided),
              "MPI_Init_thread"));
    if (provided < MPI_THREAD_FUNNELED)
      return Status::failure("this MPI cannot be called from a thread");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  World world;
  // 2. Host by host.
  PLAIT_RETURN_IF_ERROR(findHosts(world));
  PLAIT_RETURN_IF_ERROR(connect(world));
  PLAIT_RETURN_IF_ERROR(meetHost(world));
  // 3. For warnings.
  PLAIT_RETURN_IF_ERROR(listen());
  return world;
}

/// Names the hosts, and orders the processes by them: whatever order the
/// launcher dealt them out in, ranks that follow each other, which talk most,
/// share a host.
/// 1. All learn all names.
/// 2. Hosts get numbers in the order in which ranks of MPI name them first: the
///    same on all processes, without a word.
/// 3. MPI_Comm_split() with the host's number as key sorts by it, and by the
///    old rank among processes of one host.
Status Library::findHosts(World &world) {
  int rank = 0, ranks = 1, length = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  // 1. Names have a fixed length, so that one collective has all.
  char name[MPI_MAX_PROCESSOR_NAME] = {};
  PLAIT_RETURN_IF_ERROR(
      check(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name"));
  world.host = name;
  std::vector<char> names(size_t(ranks) * sizeof(name));
  PLAIT_RETURN_IF_ERROR(
      check(MPI_Allgather(name, sizeof(name), MPI_CHAR, names.data(),
                          sizeof(name), MPI_CHAR, MPI_COMM_WORLD),
            "MPI_Allgather"));
  // 2. Numbers.
  std::map<std::string, uint32_t> known;
  for (int i = 0; i < ranks; ++i) {
    const char *host = names.data() + size_t(i) * sizeof(name);
    auto [found, isNew] = known.try_emplace(host, uint32_t(known.size()));
    world.hosts.push_back(found->second);
    if (isNew)
      world.hostNames.push_back(host);
  }
  // 3. From here on an index is one in `all`.
  PLAIT_RETURN_IF_ERROR(
      check(MPI_Comm_split(MPI_COMM_WORLD, 0, int(world.hosts[rank]), &all),
            "MPI_Comm_split"));
  std::stable_sort(world.hosts.begin(), world.hosts.end());
  return Status::success();
}

/// The standard promises tags up to 32767 where an MPI does not say.
Status Library::connect(World &world) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(all, &rank);
  MPI_Comm_size(all, &ranks);
  index = world.index = uint32_t(rank);
  count = world.count = uint32_t(ranks);
  for (MPI_Comm &comm : comms)
    PLAIT_RETURN_IF_ERROR(check(MPI_Comm_dup(all, &comm), "MPI_Comm_dup"));
  void *limit = nullptr;
  int isKnown = 0;
  MPI_Comm_get_attr(all, MPI_TAG_UB, &limit, &isKnown);
  world.largestTag = isKnown ? uint32_t(*static_cast<int *>(limit)) : 32767;
  return Status::success();
}

/// Exchanges what the processes of this host have to know of each other.
Status Library::meetHost(World &world) {
  MPI_Comm host = MPI_COMM_NULL;
  PLAIT_RETURN_IF_ERROR(
      check(MPI_Comm_split(all, int(world.hosts[index]), int(index), &host),
            "MPI_Comm_split"));
  int local = 0;
  MPI_Comm_rank(host, &local);
  world.localIndex = uint32_t(local);
  PLAIT_RETURN_IF_ERROR(countProcessors(world, host));
  PLAIT_RETURN_IF_ERROR(findNeighbour(world, host));
  MPI_Comm_free(&host);
  return Status::success();
}

/// The processors that a launcher allows the processes of this host, each of
/// which it may have bound to some of them. Bits of the affinity masks are
/// joined: processes that are bound to the same cores count them once.
Status Library::countProcessors(World &world, MPI_Comm host) {
  cpu_set_t mine, together;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof(mine), &mine);
  PLAIT_RETURN_IF_ERROR(check(
      MPI_Allreduce(&mine, &together, sizeof(mine), MPI_BYTE, MPI_BOR, host),
      "MPI_Allreduce"));
  world.processors = uint32_t(CPU_COUNT(&together));
  return Status::success();
}

/// MPI says nothing of a process that is killed, and its launcher may take its
/// time: SLURM lets the others live for KillWait. Numbers of processes mean
/// nothing in another namespace, as containers have, whose inode tells them
/// apart.
Status Library::findNeighbour(World &world, MPI_Comm host) {
  struct Self {
    uint32_t index;
    pid_t process;
    ino_t space;
  };
  struct stat space = {};
  bool isKnown = stat("/proc/self/ns/pid", &space) == 0;
  Self mine = {index, getpid(), space.st_ino}, next = {};
  int local = 0, count = 1;
  MPI_Comm_rank(host, &local);
  MPI_Comm_size(host, &count);
  PLAIT_RETURN_IF_ERROR(check(
      MPI_Sendrecv(&mine, sizeof(mine), MPI_BYTE, (local + count - 1) % count,
                   0, &next, sizeof(next), MPI_BYTE, (local + 1) % count, 0,
                   host, MPI_STATUS_IGNORE),
      "MPI_Sendrecv"));
  if (count == 1 || !isKnown || next.space != mine.space)
    return Status::success();
  world.neighbour = next.index;
  world.neighbourId = next.process;
  return Status::success();
}

/// A notice is an empty message from anybody; one receive is always posted.
Status Library::listen() {
  return check(MPI_Irecv(nullptr, 0, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, all,
                         &notice),
               "MPI_Irecv");
}

/// Requests and cookies have the same index.
Status Library::begin(const MpiTransfer &what, void *cookie) {
  MPI_Request request = MPI_REQUEST_NULL;
  PLAIT_RETURN_IF_ERROR(transfer(what, request));
  requests.push_back(request);
  cookies.push_back(cookie);
  return Status::success();
}

/// 1. Collectives of all processes, whose regions are contiguous.
/// 2. Messages of any shape, by a datatype: MPI packs what has gaps, not this.
///    Types are freed at once; MPI keeps what transfers under way need.
Status Library::transfer(const MpiTransfer &what, MPI_Request &request) {
  Region region = simplify(what.region);
  MPI_Comm comm = comms[size_t(what.channel)];
  // 1. Texts' sizes only, so that an int counts the bytes.
  if (what.kind == MpiTransfer::Kind::AllGather)
    return check(MPI_Iallgather(region.begin, int(region.bytes), MPI_BYTE,
                                what.all, int(region.bytes), MPI_BYTE, comm,
                                &request),
                 "MPI_Iallgather");
  // 2. From the inside out.
  Type type(region.bytes);
  type.repeat(region.rows, region.rowStride);
  type.repeat(region.planes, region.planeStride);
  MPI_Datatype committed = type.commit();
  if (what.kind == MpiTransfer::Kind::Broadcast)
    return check(MPI_Ibcast(region.begin, 1, committed, 0, comm, &request),
                 "MPI_Ibcast");
  return what.kind == MpiTransfer::Kind::Send
             ? check(MPI_Isend(region.begin, 1, committed, int(what.peer),
                               int(what.tag), comm, &request),
                     "MPI_Isend")
             : check(MPI_Irecv(region.begin, 1, committed, int(what.peer),
                               int(what.tag), comm, &request),
                     "MPI_Irecv");
}

/// MPI_Testsome sets requests that are done to MPI_REQUEST_NULL; the others
/// move up, in their order.
Status Library::poll(std::vector<void *> &finished) {
  int done = 0;
  indices.resize(requests.size());
  PLAIT_RETURN_IF_ERROR(
      check(MPI_Testsome(int(requests.size()), requests.data(), &done,
                         indices.data(), MPI_STATUSES_IGNORE),
            "MPI_Testsome"));
  if (done <= 0) // MPI_UNDEFINED: there is none
    return Status::success();
  for (int i = 0; i < done; ++i)
    finished.push_back(cookies[indices[i]]);
  size_t left = 0;
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i] != MPI_REQUEST_NULL) {
      requests[left] = requests[i];
      cookies[left++] = cookies[i];
    }
  requests.resize(left);
  cookies.resize(left);
  return Status::success();
}

/// Nobody waits for these sends: the peer may be gone. The requests are kept
/// since MPI may still write to them.
void Library::notify(uint32_t peer, int tag) {
  MPI_Isend(nullptr, 0, MPI_BYTE, int(peer), tag, all, &notices.emplace_back());
}

void Library::warn() {
  for (uint32_t peer = 0; peer < count; ++peer)
    if (peer != index)
      notify(peer, warningTag);
}

void Library::answer(uint32_t peer) { notify(peer, answerTag); }

Status Library::readNotices(Notices &found) {
  // Empty messages: who sent it, and the tag, is all that it says.
  int isThere = 0;
  MPI_Status status;
  PLAIT_RETURN_IF_ERROR(
      check(MPI_Test(&notice, &isThere, &status), "MPI_Test"));
  if (!isThere)
    return Status::success();
  bool isWarning = status.MPI_TAG == warningTag;
  (isWarning ? found.failed : found.answered)
      .push_back(uint32_t(status.MPI_SOURCE));
  return listen();
}

/// The receive for notices would keep MPI_Finalize() from ending.
void Library::finish() {
  if (notice != MPI_REQUEST_NULL) {
    MPI_Cancel(&notice);
    MPI_Wait(&notice, MPI_STATUS_IGNORE);
  }
  if (isOurs)
    MPI_Finalize();
}

} // namespace

extern "C" MpiLibrary *plaitOpenMpiLibrary() { return new Library; }
