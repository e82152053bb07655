//===- Mixing.cpp - Who averages with whom --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The graphs that have a name, matrices from a file, and what is asked of both.
// Whatever it comes from, a matrix is split into exchanges in one way.
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/Mixing.h"

#include "plait/Configuration/Configuration.h"
#include "plait/Configuration/Outer.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <sstream>

using namespace plait;

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

static Matrix makeIdentity(int64_t sites, double value) {
  Matrix matrix(sites * sites, 0);
  for (int64_t i = 0; i < sites; ++i)
    matrix[i * sites + i] = value;
  return matrix;
}

/// Each site takes `weight` of the site that is `hops` before it.
static void addShift(Matrix &matrix, int64_t sites, int64_t hops,
                     double weight) {
  for (int64_t i = 0; i < sites; ++i)
    matrix[i * sites + ((i - hops) % sites + sites) % sites] += weight;
}

/// The least t with 2^t >= sites.
static int64_t countHops(int64_t sites) {
  int64_t count = 0;
  while (int64_t(1) << count < sites)
    ++count;
  return count;
}

/// A third of each of both sides.
static std::vector<Matrix> makeRing(int64_t sites) {
  Matrix matrix = makeIdentity(sites, 1 / 3.0);
  addShift(matrix, sites, 1, 1 / 3.0);
  addShift(matrix, sites, -1, 1 / 3.0);
  return {matrix};
}

/// The grid is as square as the number allows, with Metropolis weights (Xiao,
/// Boyd 2004).
static std::vector<Matrix> makeGrid(int64_t sites) {
  int64_t rows = std::max<int64_t>(1, std::sqrt(double(sites)));
  while (sites % rows)
    --rows;
  int64_t columns = sites / rows;
  auto degree = [&](int64_t i) {
    int64_t row = i / columns, column = i % columns;
    return (row > 0) + (row + 1 < rows) + (column > 0) + (column + 1 < columns);
  };
  Matrix matrix = makeIdentity(sites, 1);
  auto join = [&](int64_t i, int64_t j) {
    double weight = 1.0 / (1 + std::max(degree(i), degree(j)));
    for (auto [to, from] : {std::pair(i, j), std::pair(j, i)}) {
      matrix[to * sites + from] = weight;
      matrix[to * sites + to] -= weight;
    }
  };
  for (int64_t i = 0; i < sites; ++i) {
    if (i % columns + 1 < columns)
      join(i, i + 1);
    if (i + columns < sites)
      join(i, i + columns);
  }
  return {matrix};
}

/// Sends to all powers of two at once (Ying et al. 2021).
static std::vector<Matrix> makeExponential(int64_t sites) {
  int64_t hops = countHops(sites);
  Matrix matrix = makeIdentity(sites, 1.0 / (hops + 1));
  for (int64_t k = 0; k < hops; ++k)
    addShift(matrix, sites, int64_t(1) << k, 1.0 / (hops + 1));
  return {matrix};
}

/// Sends to one power of two after the other: together the exact mean, if the
/// number of sites is a power of two (Ying et al. 2021).
static std::vector<Matrix> makeOnePeer(int64_t sites) {
  std::vector<Matrix> period;
  for (int64_t k = 0; k < std::max<int64_t>(1, countHops(sites)); ++k) {
    period.push_back(makeIdentity(sites, 0.5));
    addShift(period.back(), sites, int64_t(1) << k, 0.5);
  }
  return period;
}

static std::vector<Matrix> makeComplete(int64_t sites) {
  return {Matrix(sites * sites, 1.0 / double(sites))};
}

static constexpr MixingGraph kGraphs[] = {{"ring", makeRing},
                                          {"grid", makeGrid},
                                          {"exponential", makeExponential},
                                          {"one-peer", makeOnePeer},
                                          {"complete", makeComplete}};

std::span<const MixingGraph> plait::getMixingGraphs() { return kGraphs; }

static const MixingGraph *find(std::string_view name) {
  auto found = std::ranges::find(kGraphs, name, &MixingGraph::name);
  return found == std::end(kGraphs) ? nullptr : found;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

/// The parts of `text` between `separator`.
static std::vector<std::string_view> split(std::string_view text,
                                           char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos)
      return parts;
    text.remove_prefix(end + 1);
  }
}

/// A square matrix of `sites` rows.
static Result<Matrix> parseMatrix(std::string_view name, std::string_view text,
                                  int64_t sites) {
  Matrix matrix;
  std::vector<std::string_view> rows = split(text, '/');
  if (int64_t(rows.size()) != sites)
    return fail(name, " has a matrix of ", rows.size(),
                rows.size() == 1 ? " row" : " rows", ", expected ", sites,
                sites == 1 ? ", the one site" : ", one for each site");
  for (int64_t i = 0; i < sites; ++i) {
    int64_t count = 0;
    for (std::string_view word : split(rows[i], ' ')) {
      if (word.empty())
        continue;
      double value;
      const char *end = word.data() + word.size();
      auto [last, error] = std::from_chars(word.data(), end, value);
      if (error != std::errc() || last != end)
        return fail(name, " has \"", word, "\" in row ", i,
                    " of a matrix, expected a number");
      matrix.push_back(value);
      ++count;
    }
    if (count != sites)
      return fail(name, " has ", count, count == 1 ? " number" : " numbers",
                  " in row ", i, " of a matrix, expected ", sites);
  }
  return matrix;
}

/// Rows are lines of numbers, matrices are apart by an empty line. What is no
/// number is found later, with its row.
static std::string readMatrices(std::istream &file) {
  std::string text, line;
  bool endsMatrix = false;
  while (std::getline(file, line)) {
    std::ranges::replace_if(
        line, [](char c) { return c == ',' || c == '\t' || c == '\r'; }, ' ');
    std::istringstream words(line);
    std::string row, word;
    while (words >> word)
      row += (row.empty() ? "" : " ") + word;
    if (row.empty()) {
      endsMatrix = !text.empty();
      continue;
    }
    text += (text.empty() ? "[" : endsMatrix ? "|" : "/") + row;
    endsMatrix = false;
  }
  return text.empty() ? text : text + "]";
}

/// Texts of configurations have a meaning of their own for all else.
static Status checkLetters(std::string_view name, std::string_view matrices) {
  for (char letter : matrices.substr(1, matrices.size() - 2))
    if (!std::isalnum(static_cast<unsigned char>(letter)) &&
        !std::strchr(". -/|", letter))
      return fail(name, " has '", letter, "' in a matrix, expected numbers");
  return Status::success();
}

Result<std::string> plait::readGraph(std::string_view name,
                                     std::string_view text) {
  if (find(text))
    return std::string(text);
  std::string matrices(text);
  if (!text.starts_with('[') || !text.ends_with(']') || text.size() < 2) {
    std::ifstream file{std::string(text)};
    matrices = readMatrices(file);
  }
  if (!matrices.empty()) {
    PLAIT_RETURN_IF_ERROR(checkLetters(name, matrices));
    return matrices;
  }
  std::vector<std::string> names;
  for (const MixingGraph &graph : kGraphs)
    names.emplace_back(graph.name);
  names.push_back("a file with a matrix");
  return fail(name, " has graph \"", text, "\", expected ", joinChoices(names));
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

/// Written so that NaN fails.
static Status checkStochastic(std::string_view name, const Matrix &matrix,
                              int64_t sites) {
  for (int64_t i = 0; i < sites; ++i) {
    double row = 0, column = 0;
    for (int64_t j = 0; j < sites; ++j) {
      double value = matrix[i * sites + j];
      if (!(value >= 0 && value <= 1))
        return fail(name, " has ", value, " in row ", i, " and column ", j,
                    " of its matrix, expected 0 to 1");
      row += value;
      column += matrix[j * sites + i];
    }
    for (auto [what, sum] :
         {std::pair("row", row), std::pair("column", column)})
      if (!(std::abs(sum - 1) <= kStochasticTolerance))
        return fail(name, " has a matrix that is not doubly stochastic: ", what,
                    " ", i, " adds up to ", sum, ", expected 1 up to ",
                    kStochasticTolerance);
  }
  return Status::success();
}

/// The first site that nothing of site 0 ever comes to; `sites`: there is none.
/// As W is doubly stochastic, it is the same in the other direction.
static int64_t findApart(std::span<const Matrix> period, int64_t sites) {
  std::vector<bool> seen(sites, false);
  std::vector<int64_t> left = {0};
  seen[0] = true;
  while (!left.empty()) {
    int64_t from = left.back();
    left.pop_back();
    for (int64_t i = 0; i < sites; ++i)
      for (const Matrix &matrix : period)
        if (!seen[i] && matrix[i * sites + from] > 0) {
          seen[i] = true;
          left.push_back(i);
        }
  }
  return std::ranges::find(seen, false) - seen.begin();
}

static Status checkMixings(std::string_view name,
                           std::span<const Matrix> period, int64_t sites) {
  for (const Matrix &matrix : period)
    PLAIT_RETURN_IF_ERROR(checkStochastic(name, matrix, sites));
  if (int64_t apart = findApart(period, sites); apart < sites)
    return fail(name,
                " has a graph that is not connected: nothing of site 0 "
                "ever comes to site ",
                apart);
  // A matrix that only moves weights around, such as an exchange of two.
  double factor = getContraction(period, sites);
  return factor < 1 - 1e-9
             ? Status::success()
             : fail(name,
                    " has a graph by which sites never agree: what they "
                    "differ by shrinks by the factor ",
                    factor);
}

Result<std::vector<Matrix>> plait::makeMixings(std::string_view name,
                                               std::string_view graph,
                                               int64_t sites) {
  if (sites > kMostGossipSites)
    return fail(name, " is gossip of ", sites, " sites, expected at most ",
                kMostGossipSites);
  if (const MixingGraph *known = find(graph))
    return known->make(sites);
  if (!graph.starts_with('[') || !graph.ends_with(']'))
    return fail(name, " has graph \"", graph, "\", which is unknown");
  std::vector<Matrix> period;
  std::vector<std::string_view> texts =
      split(graph.substr(1, graph.size() - 2), '|');
  if (int64_t(texts.size()) > kMostMixings)
    return fail(name, " has a graph of ", texts.size(),
                " matrices, expected at most ", kMostMixings);
  for (std::string_view text : texts) {
    Result<Matrix> matrix = parseMatrix(name, text, sites);
    if (!matrix.ok())
      return matrix.status();
    period.push_back(std::move(*matrix));
  }
  PLAIT_RETURN_IF_ERROR(checkMixings(name, period, sites));
  return period;
}

//===----------------------------------------------------------------------===//
// Contraction
//===----------------------------------------------------------------------===//

static Matrix multiply(const Matrix &left, const Matrix &right, int64_t n) {
  Matrix result(n * n, 0);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < n; ++k)
      for (int64_t j = 0; j < n; ++j)
        result[i * n + j] += left[i * n + k] * right[k * n + j];
  return result;
}

/// Let D be the product of the period less J/n: the largest eigenvalue of DᵀD
/// is the limit of trace((DᵀD)^m)^(1/m), for m = 2^20 up to a factor of
/// n^(1/m). Powers are by squaring, each divided by its largest element, whose
/// logarithms are kept.
double plait::getContraction(std::span<const Matrix> period, int64_t sites) {
  Matrix product = makeIdentity(sites, 1);
  for (const Matrix &matrix : period)
    product = multiply(matrix, product, sites);
  Matrix transposed(product.size());
  for (double &value : product)
    value -= 1 / double(sites);
  for (int64_t i = 0; i < sites * sites; ++i)
    transposed[i % sites * sites + i / sites] = product[i];
  Matrix power = multiply(transposed, product, sites);
  double logarithm = 0, exponent = 1;
  for (int step = 0; step <= 20; ++step) {
    double largest = 0;
    for (double value : power)
      largest = std::max(largest, std::abs(value));
    if (largest < 1e-30) // all that is left are roundings
      return 0;
    for (double &value : power)
      value /= largest;
    logarithm += std::log(largest) / exponent;
    if (step == 20)
      break;
    power = multiply(power, power, sites);
    exponent *= 2;
  }
  double trace = 0;
  for (int64_t i = 0; i < sites; ++i)
    trace += power[i * sites + i];
  return std::exp((logarithm + std::log(trace) / exponent) / 2);
}

//===----------------------------------------------------------------------===//
// Exchanges
//===----------------------------------------------------------------------===//

namespace {
/// Colours the edges of the graph of senders and receivers so that no two of
/// one vertex have the same colour. As many colours as the largest degree are
/// enough (Kőnig 1916).
class EdgeColours {
public:
  EdgeColours(int64_t sites, int64_t colours)
      : sites(sites), colours(colours), partner(2 * sites * colours, none) {}

  /// Takes a colour that both ends are without. Else the path from the
  /// receiver along edges of the two colours has its colours exchanged: it
  /// cannot come to the sender, which has none of the first one.
  void add(int64_t sender, int64_t receiver) {
    int64_t from = sender, to = sites + receiver;
    int64_t first = findFree(from), second = findFree(to);
    std::vector<int64_t> path = {to};
    for (int64_t colour = first; at(path.back(), colour) != none;
         colour = first + second - colour)
      path.push_back(at(path.back(), colour));
    for (size_t i = 0; i + 1 < path.size(); ++i)
      set(path[i], path[i + 1], i % 2 ? second : first, none);
    for (size_t i = 0; i + 1 < path.size(); ++i)
      set(path[i], path[i + 1], i % 2 ? first : second, 0);
    set(from, to, first, 0);
  }

  /// The receiver of what `sender` sends in an exchange, or -1.
  int32_t targetOf(int64_t sender, int64_t colour) const {
    int64_t end = partner[sender * colours + colour];
    return end == none ? -1 : int32_t(end - sites);
  }

private:
  static constexpr int64_t none = -1;

  int64_t &at(int64_t vertex, int64_t colour) {
    return partner[vertex * colours + colour];
  }
  void set(int64_t left, int64_t right, int64_t colour, int64_t value) {
    at(left, colour) = value == none ? none : right;
    at(right, colour) = value == none ? none : left;
  }
  int64_t findFree(int64_t vertex) {
    int64_t colour = 0;
    while (at(vertex, colour) != none)
      ++colour;
    return colour;
  }

  int64_t sites, colours;
  std::vector<int64_t> partner; // of a vertex, by colour
};
} // namespace

std::vector<MixingExchange> plait::makeExchanges(const Matrix &matrix,
                                                 int64_t sites) {
  auto isEdge = [&](int64_t to, int64_t from) {
    return to != from && matrix[to * sites + from] > 0;
  };
  int64_t degree = 0;
  for (int64_t i = 0; i < sites; ++i) {
    int64_t sent = 0, received = 0;
    for (int64_t j = 0; j < sites; ++j) {
      sent += isEdge(j, i);
      received += isEdge(i, j);
    }
    degree = std::max({degree, sent, received});
  }
  EdgeColours edges(sites, degree);
  // By distance, so that all sites do the same where the graph is the same for
  // all.
  for (int64_t hops = 1; hops < sites; ++hops)
    for (int64_t from = 0; from < sites; ++from)
      if (int64_t to = (from + hops) % sites; isEdge(to, from))
        edges.add(from, to);
  std::vector<MixingExchange> exchanges;
  for (int64_t colour = 0; colour < degree; ++colour) {
    MixingExchange &exchange = exchanges.emplace_back(MixingExchange{
        std::vector<int32_t>(sites, -1), std::vector<double>(sites, 0)});
    for (int64_t from = 0; from < sites; ++from)
      if (int32_t to = edges.targetOf(from, colour); to >= 0) {
        exchange.targets[from] = to;
        exchange.weights[to] = matrix[to * sites + from];
      }
  }
  return exchanges;
}

Result<double> plait::countMessages(std::string_view name, const Outer &outer) {
  if (!outer.is(Agreement::Gossip))
    return 0.0;
  Result<std::vector<Matrix>> period =
      makeMixings(name, outer.getGraph(), outer.sites);
  if (!period.ok())
    return period.status();
  size_t messages = 0;
  for (const Matrix &matrix : *period)
    messages += makeExchanges(matrix, outer.sites).size();
  return double(messages) * outer.countMixed() / double(period->size());
}
