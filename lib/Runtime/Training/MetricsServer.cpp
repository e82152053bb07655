//===- MetricsServer.cpp - A run as Prometheus reads it -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An HTTP server of one page, as small as Prometheus needs it: no keep-alive,
// no other method than GET, one connection at a time. The run's thread makes a
// new text after every step and the server's thread hands out the last one; the
// lock between them is held for as long as it takes to copy or swap that text.
//
// It is meant for the host or a trusted network: it listens to the local host
// unless told otherwise, reads little of a question and answers nothing but
// numbers.
//
//===----------------------------------------------------------------------===//

#include "MetricsServer.h"

#include "Stragglers.h"
#include "plait/Runtime/Checkpoint.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

using namespace plait;
using namespace plait::runtime;

/// The last colon separates, so that a host may have others, in brackets or
/// not. Which port a 0 has become is said on standard error, for scripts to
/// read; in a URL such a host must have brackets.
Result<std::unique_ptr<Observer>> MetricsServer::open(const std::string &place,
                                                      Reporter *reporter) {
  size_t colon = place.rfind(':');
  std::string host = colon == place.npos ? "127.0.0.1" : place.substr(0, colon);
  std::string port = colon == place.npos ? place : place.substr(colon + 1);
  bool isPort = !port.empty() && port.size() <= 5 &&
                port.find_first_not_of("0123456789") == port.npos &&
                std::stoul(port) <= UINT16_MAX;
  if (!isPort)
    return fail("`metrics-port`: '", place,
                "' is neither a port, 0 to 65535, nor HOST:PORT");
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  auto listener = listenAt(host, uint16_t(std::stoul(port)));
  if (!listener.ok())
    return fail("`metrics-port`: ", listener.status().message());
  auto given = portOf(*listener);
  if (!given.ok())
    return given.status();
  if (host.find(':') != host.npos)
    host = "[" + host + "]";
  tell(reporter, Severity::Info,
       "metrics at http://" + host + ":" + std::to_string(*given) + "/metrics");
  return std::unique_ptr<Observer>(new MetricsServer(std::move(*listener)));
}

/// The thread looks at `stopping` now and then; see serve().
MetricsServer::~MetricsServer() {
  stopping = true;
  thread.join();
}

/// Escapes a text as label values have it.
static std::string escape(const std::string &value) {
  std::string text;
  for (char c : value)
    if (c == '\n')
      text += "\\n";
    else if (c == '"' || c == '\\')
      text += {'\\', c};
    else
      text += c;
  return text;
}

/// Prints a number as Prometheus' text format spells it, other than printf
/// does.
static std::string printNumber(double value) {
  if (std::isnan(value))
    return "NaN";
  if (std::isinf(value))
    return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

/// A metric of one value, with its description, as the format wants it: HELP
/// and TYPE once before the samples.
static std::string printMetric(const std::string &name, const char *type,
                               const char *help, double value,
                               const std::string &labels = "") {
  return "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type +
         "\n" + name + labels + " " + printNumber(value) + "\n";
}

/// The named losses of a step, as one metric with labels.
static std::string printNamed(const fb::Plan &plan,
                              const StepMetrics &metrics) {
  std::vector<NamedLoss> losses = getNamedLosses(plan, metrics);
  if (losses.empty())
    return "";
  std::string text =
      "# HELP plait_named_loss Means over the tokens of the last "
      "step\n# TYPE plait_named_loss gauge\n";
  for (const auto &[name, value] : losses)
    text +=
        "plait_named_loss{name=\"" + name + "\"} " + printNumber(value) + "\n";
  return text;
}

/// Labels that identify the run are on a metric of their own, `plait_run_info`,
/// by which others can be joined, rather than on each.
Status MetricsServer::beginRun(const RunInfo &info) {
  run = &info;
  PlanIdentity plan = PlanIdentity::of(info.plan, info.options.planHash);
  const auto *model = info.plan.model_name();
  labels = "{model=\"" + escape(model ? model->str() : "") + "\",mesh=\"" +
           escape(plan.mesh) + "\",plan=\"" + escape(plan.hash) + "\"}";
  std::lock_guard lock(mutex);
  text = printMetric("plait_run_info", "gauge", "What runs", 1, labels) +
         printMetric("plait_steps", "gauge", "Steps that the run is to have",
                     double(info.options.steps));
  return Status::success();
}

/// Prints the samples of all ranks, by rank, host and position. All samples of
/// a metric in a row, as the format demands; hence ranks inside of metrics.
static std::string printRanks(const Stragglers &watched) {
  using Rank = Stragglers::Rank;
  struct Row {
    const char *name, *help;
    double (*get)(const Rank &);
  };
  const Row rows[] = {
      {"plait_rank_computing_seconds", "Of a step, in the last watched ones",
       [](const Rank &rank) { return rank.computing; }},
      {"plait_rank_waiting_seconds", "Of a step, for other ranks",
       [](const Rank &rank) { return rank.waiting; }},
      {"plait_rank_waited_for_seconds",
       "Of a step, by all other ranks, for this one",
       [](const Rank &rank) { return rank.waitedFor; }},
      {"plait_rank_straggles", "1 where it is slower than those with its work",
       [](const Rank &rank) { return double(rank.isSlow); }}};
  std::string text;
  for (const Row &row : rows) {
    std::string name = row.name;
    text += "# HELP " + name + " " + row.help + "\n# TYPE " + name + " gauge\n";
    for (uint32_t rank = 0; rank < watched.ranks().size(); ++rank) {
      const Rank &one = watched.ranks()[rank];
      text += name + "{rank=\"" + std::to_string(rank) + "\",host=\"" +
              escape(one.host) + "\",position=\"" + escape(one.position) +
              "\"} " + printNumber(row.get(one)) + "\n";
    }
  }
  return text;
}

/// Counters count what this process has seen: a run that goes on begins at 0,
/// which Prometheus takes for the reset that it is.
Status MetricsServer::endStep(const StepReport &step) {
  tokens += step.tokens();
  skipped += step.verdict.skipped;
  if (step.evaluation) {
    evalLoss = step.evaluation->loss;
    hasEvaluated = true;
  }
  struct Row {
    const char *name, *type, *help;
    double value;
  };
  const Row rows[] = {
      {"plait_steps", "gauge", "Steps that the run is to have",
       double(run->options.steps)},
      {"plait_step", "gauge", "Steps done", double(step.step)},
      {"plait_loss", "gauge", "Mean loss over the tokens of the last step",
       at(step.metrics, fb::Metric::Loss)},
      {"plait_gradient_norm", "gauge", "Of all gradients of the last step",
       at(step.metrics, fb::Metric::GradNorm)},
      {"plait_learning_rate", "gauge", "Of the last step", step.learningRate},
      {"plait_step_seconds", "gauge", "Wall time of the last step",
       step.seconds},
      {"plait_tokens_per_second", "gauge", "In the last step",
       step.tokensPerSecond()},
      {"plait_tokens_total", "counter", "Of all steps of this process", tokens},
      {"plait_skipped_steps_total", "counter", "Steps that changed nothing",
       skipped},
      {"plait_resident_memory_bytes", "gauge", "Of the process of rank 0",
       double(residentBytes())}};
  // The whole text is made before the lock is taken: a question waits for a
  // move only, and never sees parts of two steps.
  std::string all =
      printMetric("plait_run_info", "gauge", "What runs", 1, labels);
  for (const Row &row : rows)
    all += printMetric(row.name, row.type, row.help, row.value);
  all += printNamed(run->plan, step.metrics);
  if (double rate = run->utilization.rate(step.seconds); rate > 0)
    all += printMetric("plait_model_flops_per_second", "gauge",
                       "That the model needs, without recomputation", rate);
  if (double mfu = run->utilization.mfu(step.seconds); mfu > 0)
    all += printMetric("plait_mfu", "gauge", "Part of the devices' peak", mfu);
  if (hasEvaluated)
    all += printMetric("plait_eval_loss", "gauge",
                       "On held-out data, the last one", evalLoss);
  // Only some steps are watched: in between, the last values stay.
  if (step.watched)
    ranks = printRanks(*step.watched);
  all += ranks;
  std::lock_guard lock(mutex);
  text = std::move(all);
  return Status::success();
}

//===----------------------------------------------------------------------===//
// The thread
//===----------------------------------------------------------------------===//

/// poll() with a time limit rather than a blocking accept(): closing a socket
/// does not reliably wake a thread that waits in it.
void MetricsServer::serve() {
  // The time that the destructor may have to wait for the thread.
  constexpr int glance = 100; // milliseconds
  while (!stopping) {
    pollfd event = {listener.get(), POLLIN, 0};
    if (poll(&event, 1, glance) <= 0)
      continue;
    Socket made(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (made.get() >= 0)
      answer(made.get());
  }
}

/// Who takes longer than a second or two is left alone.
/// Reads to the end of the header and looks at the first line only. A failure
/// to send is the asker's business.
void MetricsServer::answer(int connection) {
  timeval limit = {1, 0};
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  constexpr size_t most = 1 << 14; // bytes of a question
  std::string question;
  char part[1024];
  // The limits of the socket are for each call: one byte at a time could keep
  // the thread for ever.
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (question.find("\r\n\r\n") == question.npos) {
    ssize_t count = recv(connection, part, sizeof(part), 0);
    if (count <= 0 || question.size() > most ||
        std::chrono::steady_clock::now() > end)
      return;
    question.append(part, size_t(count));
  }
  bool isKnown = question.starts_with("GET /metrics ") ||
                 question.starts_with("GET /metrics?");
  std::string body = "there is only GET /metrics\n";
  if (isKnown) {
    std::lock_guard lock(mutex);
    body = text;
  }
  std::string reply =
      std::string("HTTP/1.1 ") + (isKnown ? "200 OK" : "404 Not Found") +
      "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8"
      "\r\nConnection: close\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  sendAll(connection, reply.data(), reply.size());
}
