//===- Supervisor.cpp - Runs that survive their processes -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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
#include <cstdio>
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

/// How often the processes and the hosts are looked at.
constexpr milliseconds glance(20), hostsGlance(1000);
/// What a host has to answer in, and how long a restart is put off at most.
constexpr milliseconds probeLimit(20000), longestPause(60000);
/// What ends the processes after their step: mpirun and srun pass it on, while
/// they take SIGTERM as an order to kill.
constexpr int stopSignal = SIGUSR1;

template <typename... Parts> void say(const Parts &...parts) {
  std::ostringstream line;
  line << "plait-run: supervisor: ";
  (line << ... << parts) << "\n";
  std::fputs(line.str().c_str(), stderr);
}

std::vector<std::string> splitWords(const std::string &text) {
  std::istringstream words(text);
  std::vector<std::string> result;
  for (std::string word; words >> word;)
    result.push_back(word);
  return result;
}

/// One supervisor for a directory. The lock goes with the process.
class SupervisorLock {
public:
  ~SupervisorLock() {
    if (descriptor >= 0)
      close(descriptor);
  }
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

class Supervisor {
public:
  Supervisor(const SupervisorOptions &options, PlanFamily family)
      : options(options), family(std::move(family)),
        launcher(splitWords(options.launcher)) {}

  Result<int> run();

private:
  enum class End { Done, Failed, Interrupted, Resized };

  Result<Hosts> findHosts();
  Status failToFit(const Hosts &hosts) const;
  std::optional<uint64_t> storedStep() const;
  std::optional<uint64_t> newestStep() const;
  std::string describeNewest() const;
  Result<End> runOnce();
  Result<End> watch(ChildProcess &job, const PlanFamily::Member &member);
  const PlanFamily::Member *findAfterChange();
  bool pause(uint64_t failures);

  const SupervisorOptions &options;
  PlanFamily family;
  std::vector<std::string> launcher;
  std::filesystem::file_time_type hostsTime;
  std::string reason; // of the last failure
};

/// Those that a plan can be started on now; empty: the launcher knows.
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

Status Supervisor::failToFit(const Hosts &hosts) const {
  const PlanFamily::Member &smallest = family.smallest();
  return fail("no plan of the family of '", options.plan, "' is for ",
              countSlots(hosts), " slots, what is left of '", options.hosts,
              "': the smallest, '", smallest.path, "', needs ", smallest.ranks);
}

/// Of the newest checkpoint on the disk.
std::optional<uint64_t> Supervisor::storedStep() const {
  auto found = CheckpointStore(options.checkpoints).list();
  return found.ok() && !found->empty() ? std::optional(found->front().step)
                                       : std::nullopt;
}

/// Of that, or of the newest one that hosts have had in memory.
std::optional<uint64_t> Supervisor::newestStep() const {
  auto stored = storedStep();
  auto mark = ReplicaMark::read(options.checkpoints);
  return mark && mark->step ? std::max(stored, std::optional(mark->step))
                            : stored;
}

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

/// The plan that would run now, if that is another one than `member`.
const PlanFamily::Member *Supervisor::findAfterChange() {
  std::error_code error;
  auto time = std::filesystem::last_write_time(options.hosts, error);
  if (error || time == hostsTime)
    return nullptr;
  hostsTime = time;
  auto hosts = readHosts(options.hosts); // half written: it changes again
  return hosts.ok() ? family.find(countSlots(*hosts)) : nullptr;
}

/// Starts the processes and waits for their end.
Result<Supervisor::End> Supervisor::runOnce() {
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
  auto words = launcherArguments(launcher, member->ranks, *hosts);
  std::error_code error;
  words.push_back(std::filesystem::read_symlink("/proc/self/exe", error));
  words.push_back(member->path);
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
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
  auto job = ChildProcess::start(words);
  if (!job.ok())
    return job.status();
  return watch(*job, *member);
}

Result<Supervisor::End> Supervisor::watch(ChildProcess &job,
                                          const PlanFamily::Member &member) {
  Clock::time_point start = Clock::now(), looked = start;
  bool isResized = false;
  int signal = 0;
  while (job.isRunning()) {
    if (signal == 0 && (signal = options.interrupted()))
      job.send(stopSignal);
    if (!options.hosts.empty() && !isResized && signal == 0 &&
        Clock::now() - looked > hostsGlance) {
      looked = Clock::now();
      const PlanFamily::Member *other = findAfterChange();
      if (other && other != &member) {
        say("'", options.hosts, "' has changed: stops after this step, to go ",
            "on with '", other->path, "'");
        isResized = true;
        job.send(stopSignal);
      }
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

/// False: it was interrupted.
bool Supervisor::pause(uint64_t failures) {
  milliseconds time =
      std::min(milliseconds(500) * (1 << std::min<uint64_t>(failures - 1, 10)),
               longestPause);
  say(reason, "; the newest checkpoint is ", describeNewest(), "; restart ",
      failures, " of ", options.maxRestarts, " without a new one, in ",
      time.count() / 1000.0, " s");
  for (auto end = Clock::now() + time; Clock::now() < end;) {
    if (options.interrupted())
      return false;
    std::this_thread::sleep_for(glance);
  }
  return true;
}

Result<int> Supervisor::run() {
  uint64_t failures = 0; // in a row, without a new checkpoint
  while (true) {
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
    if (*end == End::Resized)
      continue;
    if (++failures > options.maxRestarts)
      return fail(reason, "; gives up after ", options.maxRestarts,
                  " restarts without a new checkpoint in '",
                  options.checkpoints, "'");
    if (!pause(failures))
      return 128 + options.interrupted();
  }
}

} // namespace

Result<int> runtime::supervise(const SupervisorOptions &options) {
  if (splitWords(options.launcher).empty())
    return Status::failure("--launcher is empty");
  auto family = PlanFamily::open(options.plan);
  if (!family.ok())
    return family.status();
  if (!options.hosts.empty())
    if (auto hosts = readHosts(options.hosts); !hosts.ok())
      return hosts.status();
  PLAIT_RETURN_IF_ERROR(CheckpointStore(options.checkpoints).make());
  SupervisorLock lock;
  PLAIT_RETURN_IF_ERROR(lock.take(options.checkpoints));
  PLAIT_RETURN_IF_ERROR(family->checkFits(options.checkpoints));
  adoptOrphans();
  return Supervisor(options, std::move(*family)).run();
}
