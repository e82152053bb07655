//===- Outer.h - What flows between sites -----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A site is one copy of all that a mesh is: it trains on samples of its own,
// with weights and optimizer state of its own. Every so many steps all sites
// come to an agreement, by one of the schemes that are listed here. What a
// scheme does is written in Plan.fbs; this is what can be chosen of it.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONFIGURATION_OUTER_H
#define PLAIT_CONFIGURATION_OUTER_H

#include "plait/Configuration/SiteCompression.h"
#include "plait/Support/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace plait {

/// The kinds of what sites do with their weights when they agree.
enum class Agreement : uint8_t {
  /// Each takes the mean of all (Stich 2019, "Local SGD"; McMahan et al. 2017,
  /// "FedAvg").
  Mean,
  /// A second optimizer, SGD with Nesterov's momentum, moves what all sites
  /// have agreed on last by the mean of what they have moved by since
  /// (Douillard
  /// et al. 2023, "DiLoCo").
  Optimizer,
  /// The mean of each element without the largest and the smallest ones (Yin et
  /// al. 2018).
  Middle,
  /// Each takes a weighted mean of its own and its neighbours' (Lian et al.
  /// 2017, "D-PSGD"), see Mixing.h.
  Gossip,
  /// The same of a fragment of the weights at a time, which is taken steps
  /// after it has been sent (Douillard et al. 2025, "Streaming DiLoCo").
  Streaming,
  /// Averages what sites have moved by, scaled down to a radius each
  /// (Karimireddy, He, Jaggi 2021, "centred clipping").
  Clipping
};

struct Outer;

/// Options of a scheme, as NAME=VALUE. One of both members is set.
struct OuterOption {
  std::string_view name;
  double Outer::*number = nullptr;
  int32_t Outer::*count = nullptr; // whole; `most` is not looked at
  double usual = 0; // where none is given; out of bounds: one has to be
  double least = 0, most = 0;           // of what is given
  bool hasLeast = true, hasMost = true; // whether these may be taken
};

/// One scheme. The strings are literals and live for ever.
struct OuterScheme {
  std::string_view name; // as --outer has it
  Agreement agreement;
  std::string_view example; // of what follows the colon
  std::span<const OuterOption> options = {};
  /// Whether sites may compress what they send, and how they do where nothing
  /// else is said; empty: they do not.
  bool compresses = false;
  std::string_view compressor = {};
  double decay = 1; // of errors
  /// Whether each step of a site is corrected by how its gradients differ from
  /// those of the others, which is known of SGD only.
  bool corrects = false;
  /// Whether a site keeps what its weights were when it agreed last.
  bool keepsBefore = false;
};

/// All of them, in the order in which help texts list them.
std::span<const OuterScheme> getOuterSchemes();

/// How sites agree: the value of --outer.
struct Outer {
  /// The name of a scheme and, behind a colon, of gossip the graph: a name, or
  /// matrices in brackets; of other schemes how messages are compressed, if
  /// they are. Empty: there are no sites.
  std::string scheme;
  int32_t every = 0;   // steps from one agreement to the next
  int32_t average = 0; // agreements from one mean over all to the next; 0: none
  double rate = 0, momentum = 0; // of the second optimizer; 0: there is none
  /// The sites; `--mesh` says how many. 0: it has not been asked yet.
  int32_t sites = 0;
  int32_t drop = 0;      // values on either side of a mean
  int32_t fragments = 0; // that weights are divided into; 0: none
  int32_t delay = 0;     // steps from sending a fragment to taking it
  double mix = 0;        // what a site keeps of its own weights then
  double radius = 0;     // the largest norm of what a site has moved by

  bool isOn() const { return !scheme.empty(); }
  std::string_view getName() const {
    return std::string_view(scheme).substr(0, scheme.find(':'));
  }
  /// Empty: the scheme has none.
  std::string_view getGraph() const {
    size_t end = scheme.find(':');
    return end == std::string::npos ? ""
                                    : std::string_view(scheme).substr(end + 1);
  }
  /// The row of the scheme, which has to be one.
  const OuterScheme &get() const;
  bool is(Agreement agreement) const {
    return isOn() && get().agreement == agreement;
  }
  /// The sites that a batch is split over: 1 where there are none.
  int64_t countSites() const { return sites ? sites : 1; }
  /// How messages are compressed. A mean of compressed messages has rate 1.
  SiteCompression getCompression() const;
  void setCompression(const SiteCompression &value);
  bool isCompressed() const { return getCompression().isOn(); }
  /// Whether sites send what they have moved by, from an anchor.
  bool keepsAnchor() const { return rate > 0; }
  bool keepsMomentum() const { return momentum > 0; }
  /// Whether a site keeps what it has moved by, until all have it.
  bool keepsDifference() const { return fragments > 0; }
  /// See OuterScheme.
  bool corrects() const { return isOn() && get().corrects; }
  bool keepsBefore() const { return isOn() && get().keepsBefore; }
  int getStateBytes() const {
    return int(sizeof(float)) *
           (keepsAnchor() + keepsMomentum() + keepsDifference() + corrects() +
            keepsBefore() + getCompression().keepsError());
  }
  /// How often an agreement sends all weights to a neighbour: with what they
  /// have moved by beside them.
  int countMixed() const { return corrects() && keepsBefore() ? 2 : 1; }
  /// The messages that a fragment is sent in, one in each step.
  int32_t countParts() const { return delay ? delay : 1; }
  /// The step in which fragment `p` is sent, of `every`: 1 or more, and so
  /// early that it is taken in the same `every` steps.
  int32_t getSendingStep(int32_t p) const {
    return int32_t(int64_t(p + 1) * (every - delay) / fragments);
  }
  /// The values that are left out on either side of a mean: of a median, all
  /// but one or two.
  int32_t countDropped() const;
  bool operator==(const Outer &) const = default;
};

/// Fails unless the scheme is one and all that it has is within its bounds,
/// those that follow from the number of sites included, where that is known.
/// What a scheme has no option for has to be 0. `name` is the culprit's.
Status check(std::string_view name, const Outer &value);

/// All options with their values, whether usual or not.
std::string describeOuter(const Outer &value);

/// "none", "average:8", "diloco:30,rate=0.5", "gossip:ring,every=4", and the
/// inverse: SCHEME:STEPS or gossip:GRAPH, options of the scheme, and behind a
/// plus sign `sites:N`. Options that are as usual are left out, so that equal
/// schemes have one text. What compresses messages is an option, too:
/// "average:8,compress=topk,k=32". A graph that is a file is read, and is its
/// matrices from then on.
std::string print(const Outer &value);
Status parse(std::string_view name, std::string_view text, Outer &value);

/// Moves the size of axis "sites" from `mesh`, a text such as
/// "dp=2,tp=2,sites=4", to `outer`: all that follows is about one site. Fails
/// where one of both is given without the other, where the axis is named twice
/// or has no size, and where `outer` has another number of them.
Status takeSites(std::string &mesh, Outer &outer);

} // namespace plait

#endif // PLAIT_CONFIGURATION_OUTER_H
