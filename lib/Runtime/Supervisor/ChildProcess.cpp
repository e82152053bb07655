//===- ChildProcess.cpp - A program that is started and watched -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Starting programs with fork() and exec(), and cleaning up behind them.
// Between the two calls the child does only what is safe after fork() in a
// program that may have threads.
//
//===----------------------------------------------------------------------===//

#include "ChildProcess.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

/// Runs in the child; returns errno. Only what a signal handler may do. What
/// the parent has set for itself, signals and descriptors, must not reach the
/// program.
static int become(char *const *words, bool isSilent, pid_t parent) {
  // Its own group: Ctrl-C in the terminal reaches the parent only, which
  // decides what its children are sent.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) // it has ended before that
    return ESRCH;
  // Ignored signals stay ignored over exec.
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE})
    ::signal(signal, SIG_DFL);
  int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  if (isSilent) {
    dup2(nothing, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
  }
  execvp(words[0], words);
  return errno;
}

// Fails also where the program cannot be executed: the pipe tells that from a
// program that ends with 127.
Result<ChildProcess> ChildProcess::start(const std::vector<std::string> &words,
                                         bool isSilent) {
  // Before fork(): the child may not allocate.
  std::vector<char *> pointers;
  for (const std::string &word : words)
    pointers.push_back(const_cast<char *>(word.c_str()));
  pointers.push_back(nullptr);
  int ends[2]; // closed by a successful exec, else it carries errno
  if (pipe2(ends, O_CLOEXEC) != 0)
    return fail("cannot make a pipe: ", std::strerror(errno));
  pid_t parent = getpid();
  ChildProcess child;
  child.process = fork();
  if (child.process == 0) {
    int error = become(pointers.data(), isSilent, parent);
    (void)!write(ends[1], &error, sizeof(error));
    _exit(127);
  }
  int error = child.process < 0 ? errno : 0;
  close(ends[1]);
  // Returns when the child has become the program, which closes its end.
  if (child.process > 0 && read(ends[0], &error, sizeof(error)) <= 0)
    error = 0;
  close(ends[0]);
  if (error)
    return fail("cannot start '", words[0], "': ", std::strerror(error));
  return child;
}

/// Does not wait. Once the end has been seen, the process is reaped and its
/// number may be somebody else's.
bool ChildProcess::isRunning() {
  if (process < 0)
    return false;
  int status = 0;
  pid_t ended = waitpid(process, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR))
    return true;
  // 128 + the signal, as shells have it. Nothing is known of the end of one
  // that somebody else has waited for.
  if (ended > 0)
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  process = -1;
  return false;
}

/// Linux: each thread has a list of its own.
bool ChildProcess::hasChildren() const {
  std::error_code error;
  std::filesystem::directory_iterator thread(
      "/proc/" + std::to_string(process) + "/task", error),
      end;
  for (; !error && thread != end; thread.increment(error)) {
    std::ifstream children(thread->path() / "children");
    if (pid_t child = 0; children >> child)
      return true;
  }
  return false;
}

void ChildProcess::send(int signal) {
  if (process > 0)
    kill(process, signal);
}

/// SIGKILL, since this is reached with a child that nobody wants any more; it
/// takes effect, so that waiting is short.
ChildProcess::~ChildProcess() {
  if (process <= 0)
    return;
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
}

/// Linux: a subreaper becomes the parent of whom descendants leave behind.
void runtime::adoptOrphans() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  signal(SIGCHLD, SIG_DFL); // ignored, which exec() keeps, children vanish
}

// As the parent is a subreaper, the children of a killed child become its own:
// rounds go on until waitpid() has no child left.
void runtime::killChildren() {
  std::string list = "/proc/self/task/" + std::to_string(getpid()) +
                     "/children"; // there is one thread
  while (waitpid(-1, nullptr, WNOHANG) >= 0) {
    std::ifstream children(list);
    if (!children) // then init has them
      return;
    for (pid_t child = 0; children >> child;)
      kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}
