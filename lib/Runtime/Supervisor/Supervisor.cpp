//===- Supervisor.cpp - Runs that survive their processes -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A loop around a launcher: find the hosts, pick the plan that fits, start it
// from the newest checkpoint, wait, and do it again until the run is done or
// makes no progress. The supervisor keeps no state of the run: that is what
// checkpoints are for, so that it can itself be killed and started again. It
// lives outside of the job, because MPI ends a job with any of its processes
// (docs/Clusters.md, "Runs that survive").
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Supervisor.h"

#include "Checkpoint/ReplicaFolder.h"
#include "Checkpoint/Store.h"
#include "ChildProcess.h"
#include "Family.h"
#include "Hosts.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <sstream>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// How often the processes and the hosts are looked at, and the processes told
/// to end. Waiting for the child by polling: it and signals, hosts and time are
/// looked at in one loop, on one thread.
constexpr milliseconds glance(20), hostsGlance(1000), tellingPause(1000);
/// The time that a host has to answer in, a launcher has to end in once its
/// processes have, and how long a restart is put off.
constexpr milliseconds probeLimit(20000), endLimit(10000), firstPause(500),
    longestPause(60000);
/// The signal that ends the processes after their step: mpirun and srun pass it
/// on, while they take SIGTERM as an order to kill.
constexpr int stopSignal = SIGUSR1;

/// No quotes: arguments with blanks cannot be given.
std::vector<std::string> splitWords(const std::string &text) {
  std::istringstream words(text);
  std::vector<std::string> result;
  for (std::string word; words >> word;)
    result.push_back(word);
  return result;
}

/// One supervisor for a directory. The lock goes with the process. flock() and
/// not a file that exists: a supervisor that is killed leaves no lock.
class SupervisorLock {
public:
  ~SupervisorLock() {
    if (descriptor >= 0)
      close(descriptor);
  }
  /// Failures other than that somebody has it, as on file systems without
  /// locks, are let pass.
  Status take(const std::string &directory) {
    std::string path = directory + "/.supervisor";
    descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0)
      return fail("cannot write '", path, "': ", std::strerror(errno));
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      return fail("checkpoint directory '", directory,
                  "' has a supervisor already");
    return Status::success();
  }

private:
  int descriptor = -1;
};

/// Tells when a launcher outlives the processes that it has started itself:
/// mpirun of Open MPI 4.1 was seen to wait for ever for a lock of its own, with
/// no process left.
class LauncherEnd {
public:
  explicit LauncherEnd(const ChildProcess &launcher) : launcher(launcher) {}

  /// A launcher that has never had a child starts processes elsewhere.
  bool isOverdue() {
    Clock::time_point now = Clock::now();
    if (now - looked < hostsGlance)
      return false;
    looked = now;
    if (launcher.hasChildren())
      lastBusy = now;
    return lastBusy && now - *lastBusy > endLimit;
  }

private:
  const ChildProcess &launcher;
  Clock::time_point looked;
  std::optional<Clock::time_point> lastBusy;
};

/// Holds what a restart needs; run() may be called once.
class Supervisor {
public:
  Supervisor(const SupervisorOptions &options, PlanFamily family)
      : options(options), family(std::move(family)),
        launcher(splitWords(options.launcher)) {}

  Result<int> run();

private:
  template <typename... Parts> void say(const Parts &...parts) const {
    std::ostringstream line;
    (line << ... << parts);
    tell(options.reporter, Severity::Info, line.str());
  }

  /// Resized: it has stopped, with a checkpoint, since another plan fits.
  enum class End { Done, Failed, Interrupted, Resized };

  Result<Hosts> findHosts();
  Status failToFit(const Hosts &hosts) const;
  std::optional<uint64_t> storedStep() const;
  std::optional<uint64_t> newestStep() const;
  std::string describeNewest() const;
  Result<End> runOnce();
  Result<End> watch(ChildProcess &job, const PlanFamily::Member &member);
  const PlanFamily::Member *findAfterChange();
  bool fitsAnother(const PlanFamily::Member &member);
  bool pause(uint64_t failures);

  const SupervisorOptions &options;
  PlanFamily family;
  std::vector<std::string> launcher;
  std::filesystem::file_time_type hostsTime;
  Clock::time_point looked; // at the file of hosts
  std::string reason;       // of the last failure
};

/// Those that a plan can be started on now; empty: the launcher knows. Asked
/// before each start. The time of the file is taken before it is read, so that
/// a change in between is seen later. Within a job of SLURM the launcher knows
/// its nodes; otherwise everything is on this host.
Result<Hosts> Supervisor::findHosts() {
  if (options.hosts.empty()) {
    if (std::getenv("SLURM_JOB_ID"))
      return Hosts();
    // Without its slots mpirun takes no more processes than it sees cores.
    return Hosts{{"localhost", family.find(UINT64_MAX)->ranks}};
  }
  std::error_code ignored;
  hostsTime = std::filesystem::last_write_time(options.hosts, ignored);
  auto hosts = readHosts(options.hosts);
  if (!hosts.ok())
    return hosts.status();
  for (const std::string &lost : dropLost(*hosts, launcher, probeLimit))
    say("host '", lost, "' does not answer and is left out");
  return hosts;
}

/// The smallest plan says how far off it is.
Status Supervisor::failToFit(const Hosts &hosts) const {
  const PlanFamily::Member &smallest = family.smallest();
  return fail("no plan of the family of '", options.plan, "' is for ",
              countSlots(hosts), " slots, what is left of '", options.hosts,
              "': the smallest, '", smallest.path, "', needs ", smallest.ranks);
}

/// Returns the step of the newest checkpoint on the disk. A directory that
/// cannot be read has none.
std::optional<uint64_t> Supervisor::storedStep() const {
  auto found = CheckpointStore(options.checkpoints).list();
  return found.ok() && !found->empty() ? std::optional(found->front().step)
                                       : std::nullopt;
}

/// Returns the step of that, or of the newest one that hosts have had in
/// memory. It counts as progress: nothing is older than anything.
std::optional<uint64_t> Supervisor::newestStep() const {
  auto stored = storedStep();
  auto mark = ReplicaMark::read(options.checkpoints);
  return mark && mark->step ? std::max(stored, std::optional(mark->step))
                            : stored;
}

/// Both, where they differ: memory may be lost with its host.
std::string Supervisor::describeNewest() const {
  auto stored = storedStep(), newest = newestStep();
  if (!newest)
    return "none";
  std::string text = "of step " + std::to_string(*newest);
  if (newest != stored)
    text += " in memory, on the disk " +
            (stored ? "of step " + std::to_string(*stored) : "none");
  return text;
}

/// The plan that would run now, if that is another one than `member`. Hosts are
/// not probed here, while a run uses them; only when it has stopped.
const PlanFamily::Member *Supervisor::findAfterChange() {
  std::error_code error;
  auto time = std::filesystem::last_write_time(options.hosts, error);
  if (error || time == hostsTime)
    return nullptr;
  hostsTime = time;
  auto hosts = readHosts(options.hosts); // half written: it changes again
  return hosts.ok() ? family.find(countSlots(*hosts)) : nullptr;
}

/// Whether the run has to stop for another plan; asked again and again.
bool Supervisor::fitsAnother(const PlanFamily::Member &member) {
  if (options.hosts.empty() || Clock::now() - looked < hostsGlance)
    return false;
  looked = Clock::now();
  const PlanFamily::Member *other = findAfterChange();
  if (!other || other == &member)
    return false;
  say("'", options.hosts, "' has changed: stops after this step, to continue ",
      "with '", other->path, "'");
  return true;
}

/// Starts the processes and waits for their end.
/// 1. Hosts and the plan for them. What is wrong with them now may be right at
///    the next try, so that it counts as a failed run and not as the end.
/// 2. The command: launcher, this program, plan, the user's options.
/// 3. Where to begin: from a checkpoint of this directory; where it has none
///    from what the user said; or from the beginning.
/// 4. Start, and wait. That the launcher cannot be started is final.
Result<Supervisor::End> Supervisor::runOnce() {
  // 1. What fits.
  auto hosts = findHosts();
  if (!hosts.ok()) { // it may be written just now
    reason = hosts.status().message();
    return End::Failed;
  }
  const PlanFamily::Member *member = hosts->empty() && options.hosts.empty()
                                         ? &family.main()
                                         : family.find(countSlots(*hosts));
  if (!member) {
    reason = failToFit(*hosts).message();
    return End::Failed;
  }
  // 2. The command.
  auto words = launcherArguments(launcher, member->ranks, *hosts);
  std::error_code error;
  words.push_back(std::filesystem::read_symlink("/proc/self/exe", error));
  words.push_back(member->path);
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  // 3. Where to begin.
  auto step = newestStep();
  // Memory may be lost, and then only the disk says what a run begins from.
  bool isOwn = storedStep() || (step && options.resume.empty());
  std::string resume = isOwn ? options.checkpoints : options.resume;
  if (!resume.empty())
    words.push_back("--resume=" + resume);
  say("starts ", member->ranks, " processes for '", member->path, "' (",
      member->mesh, "), ",
      isOwn            ? "from step " + std::to_string(*step)
      : resume.empty() ? "from the beginning"
                       : "from '" + resume + "'");
  // 4. Its output is this program's.
  auto job = ChildProcess::start(words);
  if (!job.ok())
    return job.status();
  return watch(*job, *member);
}

/// After a signal, as after a change of hosts, the run has all the time that it
/// needs for its step and checkpoint. After a signal its exit code plays no
/// role. The code of a run that has stopped for new hosts is that of the signal
/// it was stopped by.
Result<Supervisor::End> Supervisor::watch(ChildProcess &job,
                                          const PlanFamily::Member &member) {
  Clock::time_point start = looked = Clock::now(), told;
  // Processes of other hosts are no children of this one's launcher.
  bool isLocal = options.hosts.empty() && !std::getenv("SLURM_JOB_ID");
  LauncherEnd launcherEnd(job);
  bool isResized = false;
  int signal = 0;
  while (job.isRunning()) {
    // The first signal goes on to the run; the second ends this process
    // (Signals.h).
    if (signal == 0)
      signal = options.interrupted();
    if (!isResized && signal == 0)
      isResized = fitsAnother(member);
    if (isLocal && launcherEnd.isOverdue()) {
      say("the launcher has outlived its processes by ",
          endLimit.count() / 1000, " s, and is killed");
      job.send(SIGKILL);
    }
    // Processes that are being started may not get it: it is said again.
    if ((signal || isResized) && Clock::now() - told > tellingPause) {
      told = Clock::now();
      job.send(stopSignal);
    }
    std::this_thread::sleep_for(glance);
  }
  killChildren(); // whom a killed launcher has left
  if (signal)
    return End::Interrupted;
  if (job.exitCode() == 0)
    return End::Done;
  if (isResized && job.exitCode() == 128 + stopSignal)
    return End::Resized;
  double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::ostringstream text;
  text.precision(3);
  text << "the run has ended with " << job.exitCode() << " after " << seconds
       << " s";
  reason = text.str();
  return End::Failed;
}

/// Before a restart, the `failures`-th in a row: half a second, doubled with
/// each, at most a minute. False: it was interrupted.
bool Supervisor::pause(uint64_t failures) {
  std::string done = reason + "; the newest checkpoint is " + describeNewest();
  // What got somewhere may go on at once.
  if (failures == 0) {
    say(done, "; restart");
    return !options.interrupted();
  }
  milliseconds time = std::min(
      firstPause * (1 << std::min<uint64_t>(failures - 1, 10)), longestPause);
  say(done, "; restart ", failures, " of ", options.maxRestarts,
      " without a new one, in ", time.count() / 1000.0, " s");
  for (auto end = Clock::now() + time; Clock::now() < end;) {
    if (options.interrupted())
      return false;
    std::this_thread::sleep_for(glance);
  }
  return true;
}

/// A failure counts only if no checkpoint was written since the one before: a
/// run that gets on may fail as often as it likes.
Result<int> Supervisor::run() {
  uint64_t failures = 0; // in a row, without a new checkpoint
  while (true) {
    // What was there before this run is no progress of it.
    auto before = newestStep();
    auto end = runOnce();
    if (!end.ok())
      return end.status();
    if (*end == End::Done)
      return 0;
    if (*end == End::Interrupted)
      return 128 + options.interrupted();
    if (newestStep() != before)
      failures = 0;
    else if (*end == End::Failed)
      ++failures;
    if (*end == End::Resized)
      continue;
    if (failures > options.maxRestarts)
      return fail(reason, "; gives up after ", options.maxRestarts,
                  " restarts without a new checkpoint in '",
                  options.checkpoints, "'");
    if (!pause(failures))
      return 128 + options.interrupted();
  }
}

/// Options of Open MPI's launcher, unless the user has set them.
/// 1. A run that fails is ended by mpirun. Its processes cannot finish their
///    step without the one that is gone: it need not wait a second or two for
///    that.
/// 2. A host that is silent has to be given up before the processes give up:
///    mpirun would then try to end those of that host, for a quarter of an
///    hour, and nothing asks whether a connection lives that has unsent data.
void setForMpirun(std::chrono::seconds timeLimit) {
  auto set = [](const char *name, int64_t value) {
    setenv((std::string("OMPI_MCA_") + name).c_str(),
           std::to_string(value).c_str(), /*overwrite=*/0);
  };
  // 1.
  set("odls_base_sigkill_timeout", 0);
  // 2. Probes after half of the time, three in the next three eighths.
  constexpr int64_t longest = 32767; // that the system takes
  int64_t limit = timeLimit.count();
  set("oob_tcp_keepalive_time", std::clamp<int64_t>(limit / 2, 1, longest));
  set("oob_tcp_keepalive_intvl", std::clamp<int64_t>(limit / 8, 1, longest));
  set("oob_tcp_keepalive_probes", 3);
}

} // namespace

/// 1. Mistakes of the user's are found before anything is started: the
///    launcher, the family, the file of hosts.
/// 2. The directory is made and locked.
/// 3. From here on orphans of launchers are children, which killChildren()
///    finds.
Result<int> runtime::supervise(const SupervisorOptions &options) {
  // 1. What the user said.
  if (splitWords(options.launcher).empty())
    return Status::failure("`launcher` is empty");
  auto family = PlanFamily::open(options.plan);
  if (!family.ok())
    return family.status();
  if (!options.hosts.empty())
    if (auto hosts = readHosts(options.hosts); !hosts.ok())
      return hosts.status();
  // 2. The lock is held until this returns.
  PLAIT_RETURN_IF_ERROR(CheckpointStore(options.checkpoints).make());
  SupervisorLock lock;
  PLAIT_RETURN_IF_ERROR(lock.take(options.checkpoints));
  PLAIT_RETURN_IF_ERROR(family->checkFits(options.checkpoints));
  // 3. Then the runs.
  adoptOrphans();
  setForMpirun(options.timeLimit);
  return Supervisor(options, std::move(*family)).run();
}
