//===- MpiGroup.cpp - Collectives between processes -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collectives of a group whose members are in several processes; MpiGroup.h has
// the scheme. Each begins by publishing addresses to the members of this
// process and ends with a barrier among them: in between they may read each
// other's memory. Messages of one exchange are one job, sent and received in
// any order. All members of all processes compute the same bits, as each
// element is reduced by one member and copied to the rest.
//
//===----------------------------------------------------------------------===//

#include "MpiGroup.h"

#include "CPU/Reduction.h"
#include "CPU/Rows.h"
#include "plait/Plan/Check.h"

#include <algorithm>
#include <cstring>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Members are counted in the group, not in the mesh.
class MpiGroup : public Group {
public:
  MpiGroup(std::shared_ptr<MpiWorld> world, std::span<const uint32_t> ranks,
           uint32_t rank, uint32_t stream, std::shared_ptr<MpiStaging> staging);
  ~MpiGroup() override { world->settle(); }

  uint32_t streamNumber() const override { return streamOfAll; }

  Status allReduce(const std::byte *input, std::byte *output,
                   const CollectiveShape &shape,
                   fb::Reduction reduction) override;
  Status reduceScatter(const std::byte *input, std::byte *output,
                       const CollectiveShape &shape,
                       fb::Reduction reduction) override;
  Status allGather(const std::byte *input, std::byte *output,
                   const CollectiveShape &shape) override;
  Status allToAll(const std::byte *input, std::byte *output,
                  const CollectiveShape &shape) override;
  Status moveRows(const std::byte *input, std::byte *output,
                  const CollectiveShape &shape,
                  const RowChoice &choice) override;

private:
  /// The members of a process: those from `first` on. Consecutive members that
  /// share a process.
  struct Party {
    int64_t first, count;

    bool has(int64_t member) const {
      return member >= first && member < first + count;
    }
    /// Who of them receives the part of `member`, of another process.
    int64_t proxyOf(int64_t member) const { return first + member % count; }
  };

  int64_t members() const { return int64_t(ranks.size()); }
  /// Returns the operands of a member here only.
  const MpiOperands &operandsOf(int64_t member) const {
    return meeting->entries[member - here.first];
  }

  /// Shows this member's memory to those of its process, who may look at it
  /// from the next barrier to the one after that.
  void publish(const std::byte *input, std::byte *output) {
    meeting->entries[index - here.first] = {input, output};
  }
  Status barrier() { return world->meetings.barrier(*meeting); }

  // An exchange of messages: what it consists of, then all of it at once.
  void send(int64_t member, const Region &region);
  void receive(int64_t member, const Region &region);
  Status exchange();

  /// Sends this member's part, `mine`, to all other processes, and receives
  /// those parts of which it is the proxy where `place` says.
  template <typename Place>
  Status exchangeParts(const Region &mine, Place place);

  /// Elements of each member that fit the staging area together.
  int64_t stagedElements(size_t elementBytes) const {
    return int64_t(staging->size() / elementBytes) / members();
  }
  /// Returns where the contribution of `member`, of another process, is
  /// received.
  template <typename Element>
  Element *stagedOf(int64_t member, int64_t elements) const {
    return reinterpret_cast<Element *>(staging->data()) + member * elements;
  }

  template <typename Element>
  Status reduceSegment(const Element *input, Element *output, int64_t begin,
                       int64_t count, fb::Reduction reduction);
  template <typename Element>
  Status reduceRows(const Element *input, Element *output,
                    const CollectiveShape &shape, fb::Reduction reduction);

  Status exchangeRows(const std::byte *input, std::byte *output,
                      const RowMoves &moves, Slice columns);
  bool advanceRows(const RowMoves &moves, int64_t rows);
  /// The part of the staging area for rows to `member`, or from it.
  std::byte *stagedRows(int64_t member, bool received) const {
    return staging->data() + (2 * member + received) * stagedRowBytes();
  }
  int64_t stagedRowBytes() const {
    return int64_t(staging->size()) / (2 * members());
  }

  std::shared_ptr<MpiWorld> world;
  std::shared_ptr<MpiStaging> staging;
  std::vector<uint32_t> ranks; // of the members
  int64_t index = 0;           // of this one
  uint32_t streamOfAll;
  Party here = {0, 0};
  std::vector<Party> others; // the parties of the other processes
  std::shared_ptr<Meeting<MpiOperands>> meeting; // of the members here
  MpiJob job;
  /// The next row to send to each member, and to receive from it.
  std::vector<int64_t> sentRows, receivedRows;
};

/// Parties follow from the spread of ranks, so that all processes see the same
/// ones without a message.
MpiGroup::MpiGroup(std::shared_ptr<MpiWorld> sharedWorld,
                   std::span<const uint32_t> ranks, uint32_t rank,
                   uint32_t stream, std::shared_ptr<MpiStaging> staging)
    : world(std::move(sharedWorld)), staging(std::move(staging)),
      ranks(ranks.begin(), ranks.end()), streamOfAll(stream) {
  // Members increase, so those of a process are neighbours.
  for (int64_t first = 0, next; first < members(); first = next) {
    uint32_t process = world->spread.processOf(ranks[first]);
    next = first;
    while (next < members() && world->spread.processOf(ranks[next]) == process)
      ++next;
    (process == world->process ? here : others.emplace_back()) = {first,
                                                                  next - first};
  }
  index = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
  meeting = world->meetings.join(ranks, size_t(here.count));
  sentRows.resize(ranks.size());
  receivedRows.resize(ranks.size());
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

/// Empty regions are left out on both sides: slices at the end may be empty.
void MpiGroup::send(int64_t member, const Region &region) {
  uint32_t source = ranks[index], target = ranks[member];
  if (region.bytes)
    job.transfers.push_back({MpiTransfer::Kind::Send, MpiChannel::Collectives,
                             world->spread.processOf(target),
                             world->tagOf(source, target), region, nullptr});
}

void MpiGroup::receive(int64_t member, const Region &region) {
  uint32_t source = ranks[member], target = ranks[index];
  if (region.bytes)
    job.transfers.push_back({MpiTransfer::Kind::Receive,
                             MpiChannel::Collectives,
                             world->spread.processOf(source),
                             world->tagOf(source, target), region, nullptr});
}

/// The list of transfers keeps its memory for the next collective.
Status MpiGroup::exchange() {
  world->engine.submit(job);
  Status status = world->engine.wait(job, world->timeLimit);
  job.transfers.clear();
  return status;
}

/// Proxies are dealt out by the part's number, so that members of a process
/// share the receiving evenly.
template <typename Place>
Status MpiGroup::exchangeParts(const Region &mine, Place place) {
  for (const Party &party : others) {
    send(party.proxyOf(index), mine);
    for (int64_t j = party.first; j < party.first + party.count; ++j)
      if (here.proxyOf(j) == index)
        receive(j, place(j));
  }
  return exchange();
}

/// MPI takes what it only reads without const.
template <typename Element> Region rowOf(const Element *data, int64_t count) {
  return {reinterpret_cast<std::byte *>(const_cast<Element *>(data)),
          count * int64_t(sizeof(Element))};
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

/// Reduces by segments of as much as the staging area holds from all members.
/// The last barrier lets inputs change: members here may still read them.
Status MpiGroup::allReduce(const std::byte *input, std::byte *output,
                           const CollectiveShape &shape,
                           fb::Reduction reduction) {
  publish(input, output);
  PLAIT_RETURN_IF_ERROR(barrier());
  Status status = withElement(shape.type, [&](auto element) {
    using Element = decltype(element);
    int64_t count = shape.outer * shape.chunk;
    int64_t segment = stagedElements(sizeof(Element)) * members();
    for (int64_t begin = 0; begin < count; begin += segment)
      PLAIT_RETURN_IF_ERROR(
          reduceSegment(reinterpret_cast<const Element *>(input),
                        reinterpret_cast<Element *>(output), begin,
                        std::min(segment, count - begin), reduction));
    return Status::success();
  });
  PLAIT_RETURN_IF_ERROR(status);
  return barrier();
}

/// Every member reduces a slice, for which the others send it theirs, and sends
/// the result to all.
/// 1. Send the slice of each other member to it, and receive the contributions
///    to this one's from other processes into the staging area.
/// 2. Reduce, in the order of all members: those here are read where they lie.
/// 3. Send the result to all other processes, and receive the slices of which
///    this member is the proxy, straight into the output.
/// 4. Copy the other slices from their owner here, or from the proxy. The
///    output may be the input. Up to the barrier a member writes its own slice
///    and slices of members elsewhere only, which nobody here reads as input.
template <typename Element>
Status MpiGroup::reduceSegment(const Element *input, Element *output,
                               int64_t begin, int64_t count,
                               fb::Reduction reduction) {
  auto sliceOf = [&](int64_t member) {
    Slice slice = getSlice(count, members(), member, sizeof(Element));
    return Slice{slice.begin + begin, slice.end + begin};
  };
  // 1. Contributions.
  Slice mine = sliceOf(index);
  for (const Party &party : others)
    for (int64_t j = party.first; j < party.first + party.count; ++j) {
      send(j, rowOf(input + sliceOf(j).begin, sliceOf(j).size()));
      receive(j, rowOf(stagedOf<Element>(j, mine.size()), mine.size()));
    }
  PLAIT_RETURN_IF_ERROR(exchange());
  // 2. This member's slice.
  reduceInOrder(
      members(), mine.size(), reduction,
      [&](int64_t j) -> const Element * {
        if (!here.has(j))
          return stagedOf<Element>(j, mine.size());
        return reinterpret_cast<const Element *>(operandsOf(j).input) +
               mine.begin;
      },
      output + mine.begin);
  // 3. Results.
  PLAIT_RETURN_IF_ERROR(
      exchangeParts(rowOf(output + mine.begin, mine.size()), [&](int64_t j) {
        return rowOf(output + sliceOf(j).begin, sliceOf(j).size());
      }));
  // 4. From owners and proxies here.
  // The inputs of this segment, which the outputs may be, are not needed now.
  PLAIT_RETURN_IF_ERROR(barrier());
  for (int64_t j = 0; j < members(); ++j) {
    int64_t owner = here.has(j) ? j : here.proxyOf(j);
    if (owner != index)
      std::copy_n(reinterpret_cast<const Element *>(operandsOf(owner).output) +
                      sliceOf(j).begin,
                  sliceOf(j).size(), output + sliceOf(j).begin);
  }
  return Status::success();
}

/// Inputs of members here are read in reduceRows(), hence the barriers around
/// it.
Status MpiGroup::reduceScatter(const std::byte *input, std::byte *output,
                               const CollectiveShape &shape,
                               fb::Reduction reduction) {
  publish(input, output);
  PLAIT_RETURN_IF_ERROR(barrier());
  PLAIT_RETURN_IF_ERROR(withElement(shape.type, [&](auto element) {
    using Element = decltype(element);
    return reduceRows(reinterpret_cast<const Element *>(input),
                      reinterpret_cast<Element *>(output), shape, reduction);
  }));
  return barrier();
}

/// Takes as many rows of the blocks at a time as fit the staging area, or as
/// much of one row.
/// 1. Send each other member the same rows of its block, of each row `width`
///    columns from `i` on; receive theirs for this member's block, packed.
/// 2. Reduce row by row into the output. The result is this member's alone:
///    there is nothing to send back.
template <typename Element>
Status MpiGroup::reduceRows(const Element *input, Element *output,
                            const CollectiveShape &shape,
                            fb::Reduction reduction) {
  // Of each member as much as there is room for.
  int64_t staged = stagedElements(sizeof(Element));
  int64_t columns = std::min(shape.chunk, staged);
  int64_t rows = std::max<int64_t>(1, staged / shape.chunk);
  // Inputs are [row, member, column], outputs [row, column].
  auto placeOf = [&](int64_t row, int64_t member, int64_t column) {
    return (row * members() + member) * shape.chunk + column;
  };
  for (int64_t o = 0; o < shape.outer; o += rows)
    for (int64_t i = 0; i < shape.chunk; i += columns) {
      int64_t height = std::min(rows, shape.outer - o);
      int64_t width = std::min(columns, shape.chunk - i);
      for (const Party &party : others)
        for (int64_t j = party.first; j < party.first + party.count; ++j) {
          Region theirs = rowOf(input + placeOf(o, j, i), width);
          theirs.rows = height;
          theirs.rowStride = members() * shape.chunk * sizeof(Element);
          send(j, theirs);
          receive(j,
                  rowOf(stagedOf<Element>(j, height * width), height * width));
        }
      PLAIT_RETURN_IF_ERROR(exchange());
      for (int64_t row = 0; row < height; ++row)
        reduceInOrder(
            members(), width, reduction,
            [&](int64_t j) -> const Element * {
              if (!here.has(j))
                return stagedOf<Element>(j, height * width) + row * width;
              return reinterpret_cast<const Element *>(operandsOf(j).input) +
                     placeOf(o + row, index, i);
            },
            output + (o + row) * shape.chunk + i);
    }
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Exchanges
//===----------------------------------------------------------------------===//

/// Messages first, then copies among members here: what came to a proxy lies in
/// its output after the barrier, in the same position as in everybody's.
Status MpiGroup::allGather(const std::byte *input, std::byte *output,
                           const CollectiveShape &shape) {
  int64_t bytes = shape.chunk * plan::elementBytes(shape.type);
  // Outputs are [row, member, column].
  auto placeOf = [&](int64_t member) {
    Region region = rowOf(output + member * bytes, bytes);
    region.rows = shape.outer;
    region.rowStride = members() * bytes;
    return region;
  };
  publish(input, output);
  PLAIT_RETURN_IF_ERROR(
      exchangeParts(rowOf(input, shape.outer * bytes), placeOf));
  PLAIT_RETURN_IF_ERROR(barrier());
  for (int64_t o = 0; o < shape.outer; ++o)
    for (int64_t j = 0; j < members(); ++j) {
      int64_t place = (o * members() + j) * bytes;
      if (here.has(j))
        std::memcpy(output + place, operandsOf(j).input + o * bytes, bytes);
      else if (here.proxyOf(j) != index)
        std::memcpy(output + place, operandsOf(here.proxyOf(j)).output + place,
                    bytes);
    }
  return barrier();
}

/// Each pair of members exchanges its own block, so that there are no proxies.
/// Rows and planes of a block go as one message, in whatever form the other end
/// has them.
Status MpiGroup::allToAll(const std::byte *input, std::byte *output,
                          const CollectiveShape &shape) {
  int64_t bytes = shape.chunk * plan::elementBytes(shape.type);
  auto from = shape.inputRows(members()), to = shape.outputRows(members());
  // Rows and planes by what all-to-all cuts and joins; `block` counts the
  // members.
  auto regionOf = [&](const std::byte *base, const CollectiveShape::Rows &rows,
                      int64_t block) {
    Region region = rowOf(base + block * rows.block * bytes, bytes);
    region.rows = shape.middle;
    region.rowStride = rows.middle * bytes;
    region.planes = shape.outer;
    region.planeStride = rows.outer * bytes;
    return region;
  };
  publish(input, output);
  for (const Party &party : others)
    for (int64_t j = party.first; j < party.first + party.count; ++j) {
      send(j, regionOf(input, from, j));
      receive(j, regionOf(output, to, j));
    }
  PLAIT_RETURN_IF_ERROR(exchange());
  PLAIT_RETURN_IF_ERROR(barrier());
  for (int64_t o = 0; o < shape.outer; ++o)
    for (int64_t m = 0; m < shape.middle; ++m)
      for (int64_t j = here.first; j < here.first + here.count; ++j)
        std::memcpy(
            output + (o * to.outer + j * to.block + m * to.middle) * bytes,
            operandsOf(j).input +
                (o * from.outer + index * from.block + m * from.middle) * bytes,
            bytes);
  return barrier();
}

//===----------------------------------------------------------------------===//
// Rows of experts
//===----------------------------------------------------------------------===//

/// Visits up to `most` rows that go from `source` to `target`, from `row` on.
/// Returns the row behind them.
template <typename Visit>
static int64_t forRows(const RowMoves &moves, int64_t source, int64_t target,
                       int64_t row, int64_t most, Visit visit) {
  for (int64_t number = 0; number < most; ++number) {
    row = moves.next(source, target, row);
    if (row == moves.rowsOfBlock())
      return row;
    visit(number, row++);
  }
  return row;
}

/// Returns how many rows of a pair fit `bytes`, and one where none does.
static int64_t rowsOfRound(int64_t bytes, const RowMoves &moves) {
  return std::max<int64_t>(1, bytes / moves.rowBytes());
}

/// Exchanges the columns of the next rows with each member of another process,
/// packed on their way.
Status MpiGroup::exchangeRows(const std::byte *input, std::byte *output,
                              const RowMoves &moves, Slice columns) {
  int64_t most = rowsOfRound(stagedRowBytes(), moves), width = columns.size();
  for (const Party &party : others)
    for (int64_t j = party.first; j < party.first + party.count; ++j) {
      std::byte *packed = stagedRows(j, false);
      int64_t count = 0, awaited = 0;
      forRows(moves, index, j, sentRows[j], most, [&](int64_t n, int64_t row) {
        std::memcpy(packed + n * width, moves.in(input, j, row) + columns.begin,
                    width);
        count = n + 1;
      });
      forRows(moves, j, index, receivedRows[j], most,
              [&](int64_t n, int64_t) { awaited = n + 1; });
      send(j, rowOf(packed, count * width));
      receive(j, rowOf(stagedRows(j, true), awaited * width));
    }
  PLAIT_RETURN_IF_ERROR(exchange());
  for (const Party &party : others)
    for (int64_t j = party.first; j < party.first + party.count; ++j)
      forRows(moves, j, index, receivedRows[j], most,
              [&](int64_t n, int64_t row) {
                std::memcpy(moves.out(output, j, row) + columns.begin,
                            stagedRows(j, true) + n * width, width);
              });
  return Status::success();
}

/// Passes over `rows` rows of each pair; false: there are none left, and the
/// next exchange begins with the first.
bool MpiGroup::advanceRows(const RowMoves &moves, int64_t rows) {
  auto skip = [](int64_t, int64_t) {};
  bool hasMore = false;
  for (const Party &party : others)
    for (int64_t j = party.first; j < party.first + party.count; ++j) {
      sentRows[j] = forRows(moves, index, j, sentRows[j], rows, skip);
      receivedRows[j] = forRows(moves, j, index, receivedRows[j], rows, skip);
      hasMore |= moves.next(index, j, sentRows[j]) < moves.rowsOfBlock() ||
                 moves.next(j, index, receivedRows[j]) < moves.rowsOfBlock();
    }
  return hasMore;
}

/// Exchanges rounds of as many rows a pair as the staging area has room for, or
/// of a part of one row: what a step takes does not depend on routing. Both
/// members of a pair count its rounds by the ids that they have, so that a
/// member need not wait for pairs that it is not of. Members here copy, once
/// all have their inputs.
Status MpiGroup::moveRows(const std::byte *input, std::byte *output,
                          const CollectiveShape &shape,
                          const RowChoice &choice) {
  RowMoves moves(shape, choice);
  publish(input, output);
  moves.clear(output, members(), index);
  std::ranges::fill(sentRows, 0);
  std::ranges::fill(receivedRows, 0);
  int64_t unit = std::min(moves.rowBytes(), stagedRowBytes());
  int64_t most = rowsOfRound(stagedRowBytes(), moves);
  for (bool hasMore = advanceRows(moves, 0); hasMore;
       hasMore = advanceRows(moves, most))
    for (int64_t begin = 0; begin < moves.rowBytes(); begin += unit)
      PLAIT_RETURN_IF_ERROR(
          exchangeRows(input, output, moves,
                       {begin, std::min(begin + unit, moves.rowBytes())}));
  PLAIT_RETURN_IF_ERROR(barrier());
  for (int64_t j = here.first; j < here.first + here.count; ++j)
    moves.copy(operandsOf(j).input, output, j, index);
  return barrier();
}

} // namespace

std::unique_ptr<Group>
runtime::createMpiGroup(std::shared_ptr<MpiWorld> world,
                        std::span<const uint32_t> ranks, uint32_t rank,
                        uint32_t stream, std::shared_ptr<MpiStaging> staging) {
  return std::make_unique<MpiGroup>(std::move(world), ranks, rank, stream,
                                    std::move(staging));
}
