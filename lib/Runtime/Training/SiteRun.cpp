//===- SiteRun.cpp - A run that is one site of several --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Beside samples and meetings such a run is one of a plan with one site, so
// that checkpoints, evaluation and all else need not know of it.
//
//===----------------------------------------------------------------------===//

#include "SiteRun.h"

#include "RunSettings.h"
#include "Sites/Member.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Sites.h"

using namespace plait;
using namespace plait::runtime;

/// Refuses what a site cannot do by itself.
static Status checkOptions(const fb::Plan &plan, const TrainOptions &options) {
  PLAIT_RETURN_IF_ERROR(checkSitesApart(plan));
  uint32_t sites = plan::RankGrid(plan).sites();
  if (!options.sites.site)
    return fail("`meet` is given: `site` has to say which of the plan's ",
                sites, " sites this is");
  if (*options.sites.site >= sites)
    return fail("`site` is ", *options.sites.site, ", the plan has ", sites,
                ": 0 to ", sites - 1);
  if (options.onNonFinite == NonFinitePolicy::RollBack ||
      options.onSpike == SpikePolicy::RollBack)
    return Status::failure("a site cannot go back by itself: `on-nan` and "
                           "`on-spike` rollback exclude `meet`");
  return Status::success();
}

Result<std::unique_ptr<SiteRun>> SiteRun::create(const fb::Plan &plan,
                                                 const TrainOptions &options) {
  if (!options.sites.isApart())
    return std::unique_ptr<SiteRun>();
  PLAIT_RETURN_IF_ERROR(checkOptions(plan, options));
  std::unique_ptr<SiteRun> run(new SiteRun(makeSitePlan(plan)));
  Hello hello;
  hello.hash = options.planHash;
  hello.settings = getSiteSettings(options.settings);
  auto member =
      SiteMember::create(options.sites, plan, run->plan(), std::move(hello),
                         options.executor.timeLimit, options.executor.reporter);
  if (!member.ok())
    return member.status();
  run->connection = std::move(*member);
  return run;
}

SiteRun::SiteRun(std::vector<uint8_t> own) : own(std::move(own)) {}
SiteRun::~SiteRun() = default;

Status SiteRun::checkSteps(uint64_t steps) const {
  uint64_t every = plan().outer()->every();
  if (steps % every == 0)
    return Status::success();
  return fail("`steps` is ", steps, ", with `meet` a multiple of ", every,
              " is expected: sites agree every ", every, " steps");
}

void SiteRun::leave() { connection->leave(); }

/// They are trained for nothing then, but for the mean of the end.
void runtime::warnOfSites(const Executor &executor, const TrainOptions &options,
                          const RunState &begin) {
  const fb::OuterRule *outer = executor.plan().outer();
  if (!outer || !executor.leads() || !options.trains())
    return;
  uint64_t every = outer->every();
  if (options.steps / every == begin.step / every)
    executor.warn("sites agree every " + std::to_string(every) +
                  " steps, which none of the steps " +
                  std::to_string(begin.step + 1) + " to " +
                  std::to_string(options.steps) + " is");
}
