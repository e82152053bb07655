//===- TcpTree.cpp - The tree in which processes are connected ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The protocol is described in TcpTree.h. But for checking in, everything
// happens in serve(), one poll() over neighbours, comers and the door: a
// process that waits for one thing hears all others meanwhile, so that a
// failure anywhere ends every wait. Every wait has a limit that depends on the
// level in the tree: whoever is nearest to the process that is missing speaks
// first, and names it.
//
//===----------------------------------------------------------------------===//

#include "TcpTree.h"

#include "Core/StatusText.h"
#include "Meeting.h"
#include "plait/Runtime/Communicator.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string_view>
#include <sys/socket.h>
#include <utility>

using namespace plait;
using namespace plait::runtime;
using std::chrono::milliseconds;

namespace {

/// The time that one level of the tree may take to say that it has waited in
/// vain. Limits of neighbouring levels are this far apart: the one that waits
/// for the missing process is first, and has told the others before their
/// limits.
constexpr milliseconds levelTime(250);

/// "the processes of ranks 2, 5 and 3 more, of 8"; `names` begin with a rank.
std::string nameProcesses(const std::vector<std::string> &names,
                          uint32_t count) {
  constexpr size_t most = 8;
  std::string list;
  for (size_t i = 0; i < std::min(most, names.size()); ++i)
    list += (i ? ", " : "") + names[i];
  if (names.size() > most)
    list += " and " + std::to_string(names.size() - most) + " more";
  return (names.size() > 1 ? "the processes of ranks "
                           : "the process of rank ") +
         list + ", of " + std::to_string(count);
}

template <size_t Size>
void copyInto(char (&to)[Size], const std::string &from) {
  std::snprintf(to, Size, "%s", from.c_str());
}

milliseconds since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(
      std::chrono::steady_clock::now() - start);
}

} // namespace

/// Ranks of the neighbours follow from the shape; where they are is learned
/// when they meet.
TcpTree::TcpTree(const Launch &launch, const std::string &host,
                 milliseconds timeLimit)
    : launch(launch), timeLimit(timeLimit), shape{launch.ranks} {
  here.host = host;
  if (launch.rank != 0) {
    up.rank = shape.parentOf(launch.rank);
    up.host = launch.address; // of process 0; of others they say it
  }
  down.resize(shape.childrenOf(launch.rank));
  for (uint32_t i = 0; i < down.size(); ++i)
    down[i].rank = shape.firstChildOf(launch.rank) + i;
}

/// A failure that another process has told, or will tell, has Code::Released,
/// so that callers know not to report it a second time.
Result<std::unique_ptr<TcpTree>> TcpTree::join(const Launch &launch,
                                               const std::string &host,
                                               milliseconds timeLimit,
                                               Reporter *reporter) {
  std::unique_ptr<TcpTree> tree(new TcpTree(launch, host, timeLimit));
  if (launch.ranks == 1)
    return tree;
  Status met = tree->meet(reporter);
  if (met.ok())
    return tree;
  // Also where it has failed by itself before it was connected.
  Status failed = tree->giveUp(met);
  return tree->hasHeardOfFailure() ? failReleased(": " + failed.message())
                                   : failed;
}

//===----------------------------------------------------------------------===//
// Meeting
//===----------------------------------------------------------------------===//

/// 1. Open the port: only that of process 0 is known beforehand.
/// 2. All others check in with process 0 and connect to their neighbours that
///    have come already.
/// 3. Wait until all neighbours are connected, for process 0 until all have
///    come.
/// 4. One round up and down the tree: nobody returns before everybody can.
Status TcpTree::meet(Reporter *reporter) {
  bool isFirst = launch.rank == 0;
  auto opened = isFirst ? openAsFirst(launch)
                        : Reception::open(0, launch.run, launch.secret);
  if (!opened.ok())
    return opened.status();
  reception = std::move(*opened);
  if (isFirst) {
    places.resize(launch.ranks);
    arrived.assign(launch.ranks, false);
  } else {
    PLAIT_RETURN_IF_ERROR(checkIn(reporter));
  }
  PLAIT_RETURN_IF_ERROR(awaitAll(reporter));
  PLAIT_RETURN_IF_ERROR(awaitWord());
  if (isFirst) // now nobody asks any more whether it is there
    reception.close();
  return Status::success();
}

/// Tells process 0 where this one is, and does what it says.
/// 1. Connect.
/// 2. Say where this process listens: the port, and the address by which this
///    connection leaves the machine, which the others can reach as well.
///    Loopback means the host of process 0, for which each has an address of
///    its own.
/// 3. Connect to the neighbours in the answer and tell process 0 how it went.
/// 4. Children of process 0 keep the connection, all others hang up.
Status TcpTree::checkIn(Reporter *reporter) {
  // 1. Which may be at another port than it was.
  auto connected = reachFirst(launch, timeLimit, reporter);
  if (!connected.ok())
    return fail("cannot reach rank 0 at ", connected.status().message());
  std::string where = launch.address + ":" + std::to_string(launch.port);
  int connection = connected->get();
  PLAIT_RETURN_IF_ERROR(setTimeLimit(connection, timeLimit));
  // 2. Where this process is reached.
  std::string address = localAddressOf(connection);
  bool isLoopback = address.starts_with("127.") || address == "::1";
  here.address = isLoopback ? "" : address;
  Greeting greeting = {.rank = launch.rank,
                       .ranks = launch.ranks,
                       .run = launch.run,
                       .secret = launch.secret,
                       .port = reception.port()};
  copyInto(greeting.address, here.address);
  copyInto(greeting.host, here.host);
  Frame answer;
  if (!sendAll(connection, &greeting, sizeof(greeting)) ||
      !receiveFrame(connection, answer))
    return systemFailure("cannot reach rank 0 at " + where);
  if (answer.kind == Frame::Kind::Failure)
    return endWith(unpackStatus(answer.text), /*byItself=*/false);
  // 3. The neighbours that have come.
  Status done = connectToEarlier(answer.text);
  if (!sendFrame(connection,
                 {done.ok() ? Frame::Kind::Text : Frame::Kind::Failure,
                  packStatus(done)}) &&
      done.ok())
    return systemFailure("cannot reach rank 0 at " + where);
  // 4. Stay, or hang up.
  if (shape.parentOf(launch.rank) == 0)
    up.connection = std::move(*connected);
  return done;
}

/// The neighbours that process 0 names: rank, port, host and address of each.
/// An empty address stands for the host of process 0.
Status TcpTree::connectToEarlier(const std::string &list) {
  std::istringstream lines(list);
  Greeting mine = {.purpose = Greeting::Purpose::Tree,
                   .rank = launch.rank,
                   .ranks = launch.ranks,
                   .run = launch.run,
                   .secret = launch.secret};
  copyInto(mine.host, here.host);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    uint32_t rank = 0;
    Place place;
    words >> rank >> place.port >> place.host >> place.address;
    // No time limit: a process opens its port before it checks in.
    // They listen, or are gone.
    auto connected =
        connectTo(place.address.empty() ? launch.address : place.address,
                  place.port, milliseconds(0));
    if (!connected.ok())
      return fail("cannot reach rank ", rank, " on ", place.host, " at ",
                  connected.status().message());
    PLAIT_RETURN_IF_ERROR(setTimeLimit(connected->get(), timeLimit));
    if (!sendAll(connected->get(), &mine, sizeof(mine)))
      return systemFailure("cannot reach rank " + std::to_string(rank) +
                           " on " + place.host);
    // Process 0 names neighbours only.
    Link *link = linkTo(rank);
    link->connection = std::move(*connected);
    link->host = place.host;
  }
  return Status::success();
}

/// Until the neighbours are connected; process 0 knows of all processes.
Status TcpTree::awaitAll(Reporter *reporter) {
  Clock::time_point start = Clock::now();
  // Process 0 knows who is missing: it speaks first.
  uint32_t levels = launch.rank == 0 ? 0 : shape.levelsBelow(launch.rank) + 1;
  WaitingNotices notices(reporter);
  // All of a large run do not ask at once.
  milliseconds pause(3000 + launch.ranks), next = pause;
  while (!isComplete()) {
    milliseconds taken = since(start);
    if (taken >= patience(levels))
      return timeOut(nameMissing(), /*speaks=*/true);
    if (launch.rank == 0)
      notices.tell("rank 0 waits for " + nameMissing(), taken);
    if (launch.rank != 0 && up.connection.get() < 0 && taken >= next) {
      PLAIT_RETURN_IF_ERROR(askForFirst());
      next = since(start) + pause;
    }
    PLAIT_RETURN_IF_ERROR(serve(start + patience(levels), /*isOpen=*/true));
  }
  return Status::success();
}

/// Process 0 counts itself.
bool TcpTree::isComplete() const {
  if (launch.rank == 0)
    return arrivals == launch.ranks;
  return up.connection.get() >= 0 &&
         std::all_of(down.begin(), down.end(), [](const Link &link) {
           return link.connection.get() >= 0;
         });
}

/// Nobody goes on before everybody is there. An empty text goes up from the
/// leaves and down from process 0.
Status TcpTree::awaitWord() {
  auto ready = fromChildren();
  if (!ready.ok())
    return ready.status();
  if (launch.rank != 0) {
    PLAIT_RETURN_IF_ERROR(toParent(""));
    auto word = fromParent();
    if (!word.ok())
      return word.status();
  }
  return toChildren("");
}

/// Fails where process 0 has ended, which nobody else may tell this one.
Status TcpTree::askForFirst() {
  auto connected = connectTo(launch.address, launch.port, milliseconds(0));
  return connected.ok()
             ? Status::success()
             : endWith(fail("rank 0 has ended: ", connected.status().message()),
                       /*byItself=*/false);
}

/// Process 0 counts who has finished checking in, the others their neighbours.
std::string TcpTree::nameMissing() const {
  std::vector<std::string> missing;
  if (launch.rank == 0) {
    for (uint32_t rank = 1; rank < launch.ranks; ++rank)
      if (!arrived[rank])
        missing.push_back(std::to_string(rank));
    return nameProcesses(missing, launch.ranks);
  }
  if (up.connection.get() < 0)
    missing.push_back(std::to_string(shape.parentOf(launch.rank)));
  for (const Link &link : down)
    if (link.connection.get() < 0)
      missing.push_back(std::to_string(link.rank));
  return nameProcesses(missing, launch.ranks);
}

//===----------------------------------------------------------------------===//
// Those who come
//===----------------------------------------------------------------------===//

/// A greeting that fits no neighbour is dropped with its connection: it may be
/// of another run.
Status TcpTree::admit(Reception::Arrival arrival) {
  const Greeting &greeting = arrival.greeting;
  if (launch.rank == 0 && greeting.purpose == Greeting::Purpose::CheckIn)
    return admitComer(std::move(arrival));
  Link *link = linkTo(greeting.rank);
  bool isNeighbour = greeting.purpose == Greeting::Purpose::Tree && link &&
                     greeting.ranks == launch.ranks &&
                     link->connection.get() < 0;
  if (isNeighbour) {
    link->connection = std::move(arrival.connection);
    link->host = greeting.host;
  }
  return Status::success();
}

/// Process 0 answers with the neighbours that have come before. Of any two
/// neighbours one comes later and is told of the other: each edge of the tree
/// is made exactly once.
Status TcpTree::admitComer(Reception::Arrival arrival) {
  const Greeting &greeting = arrival.greeting;
  uint32_t rank = greeting.rank;
  int connection = arrival.connection.get();
  Status wrong = Status::success();
  if (greeting.ranks != launch.ranks)
    wrong = fail("rank ", rank, " on ", greeting.host, " is one of ",
                 greeting.ranks, " ranks, this process of ", launch.ranks);
  else if (rank == 0 || rank >= launch.ranks || places[rank].port)
    wrong = fail("a second process says that it is rank ", rank);
  if (!wrong.ok()) {
    (void)sendFrame(connection, {Frame::Kind::Failure, packStatus(wrong)});
    return giveUp(wrong);
  }
  // By which others than those of this host reach it.
  if (*greeting.address)
    here.address = localAddressOf(connection);
  // Who cannot be told is noticed where its answer is awaited.
  (void)sendFrame(connection, {Frame::Kind::Text, neighboursOf(rank)});
  places[rank] = {uint16_t(greeting.port), greeting.host, greeting.address};
  comers.push_back({std::move(arrival.connection), rank, greeting.host});
  return Status::success();
}

/// Those of `rank` that have come, but for process 0, with which it speaks.
std::string TcpTree::neighboursOf(uint32_t rank) const {
  std::ostringstream list;
  auto add = [&](uint32_t other) {
    if (const Place &place = places[other]; place.port)
      list << other << " " << place.port << " " << place.host << " "
           << place.address << "\n";
  };
  add(shape.parentOf(rank));
  for (uint32_t i = 0; i < shape.childrenOf(rank); ++i)
    add(shape.firstChildOf(rank) + i);
  return list.str();
}

/// Whether it has reached its neighbours. Then it hangs up, or is one of this.
Status TcpTree::hearComer(Link &comer) {
  Frame frame;
  if (!receiveFrame(comer.connection.get(), frame))
    return giveUp(fail("the process of rank ", comer.rank, " on ", comer.host,
                       " has ended while others start"));
  if (frame.kind == Frame::Kind::Failure)
    return endWith(unpackStatus(frame.text), /*byItself=*/false);
  arrived[comer.rank] = true;
  ++arrivals;
  comer.ended = true;
  if (Link *link = linkTo(comer.rank)) {
    link->connection = std::move(comer.connection);
    link->host = comer.host;
  }
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Speaking
//===----------------------------------------------------------------------===//

/// Reads what has come, or waits for it until `until`, a second at most.
Status TcpTree::serve(Clock::time_point until, bool isOpen) {
  std::vector<pollfd> events;
  // In the order of `events`: neighbours, then comers, then the door.
  std::vector<Link *> watched;
  for (Link *link : links())
    if (!link->ended) {
      watched.push_back(link);
      events.push_back({link->connection.get(), POLLIN, 0});
    }
  size_t neighbours = watched.size();
  for (Link &comer : comers) {
    watched.push_back(&comer);
    events.push_back({comer.connection.get(), POLLIN, 0});
  }
  // More of them wait until these have gone.
  bool hasRoom = isOpen && comers.size() < Reception::mostGuests;
  if (hasRoom)
    reception.addTo(events);
  auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
  poll(events.data(), events.size(),
       int(std::clamp<int64_t>(left.count(), 0, 1000)));
  PLAIT_RETURN_IF_ERROR(getFailure());
  for (size_t i = 0; i < watched.size(); ++i)
    if (events[i].revents)
      PLAIT_RETURN_IF_ERROR(i < neighbours ? hear(*watched[i])
                                           : hearComer(*watched[i]));
  std::erase_if(comers, [](const Link &comer) { return comer.ended; });
  if (!hasRoom)
    return Status::success();
  auto arrivals = reception.serve(timeLimit);
  if (!arrivals.ok())
    return arrivals.status();
  for (Reception::Arrival &arrival : *arrivals)
    PLAIT_RETURN_IF_ERROR(admit(std::move(arrival)));
  return Status::success();
}

/// A frame at a time: poll() reports what is left again.
Status TcpTree::hear(Link &link) {
  Frame frame;
  if (!receiveFrame(link.connection.get(), frame)) {
    // One that has said all it had to say may go.
    link.ended = true;
    return link.inbox.empty() ? lose(link) : Status::success();
  }
  if (frame.kind == Frame::Kind::Failure)
    return endWith(unpackStatus(frame.text), /*byItself=*/false);
  link.begun += frame.text;
  if (frame.kind == Frame::Kind::Text)
    link.inbox.push_back(std::exchange(link.begun, std::string()));
  return Status::success();
}

/// A child's next text may come before its siblings' first: inboxes keep them
/// in order, and one of each is taken once all have one.
Result<std::vector<std::string>> TcpTree::fromChildren() {
  Clock::time_point until =
      Clock::now() + patience(shape.levelsBelow(launch.rank));
  while (true) {
    PLAIT_RETURN_IF_ERROR(getFailure());
    // By name, for the message, should it come to that.
    std::vector<std::string> silent;
    for (Link &link : down) {
      if (link.inbox.empty() && link.ended)
        return lose(link);
      if (link.inbox.empty())
        silent.push_back(std::to_string(link.rank) + " on " + link.host);
    }
    if (silent.empty())
      break;
    if (Clock::now() >= until)
      return timeOut(nameProcesses(silent, launch.ranks), /*speaks=*/true);
    PLAIT_RETURN_IF_ERROR(serve(until, /*isOpen=*/false));
  }
  std::vector<std::string> texts;
  for (Link &link : down) {
    texts.push_back(std::move(link.inbox.front()));
    link.inbox.pop_front();
  }
  return texts;
}

/// The limit is that of the whole tree below process 0 and of the way down.
Result<std::string> TcpTree::fromParent() {
  // Those who wait for what comes from below know more.
  Clock::time_point until =
      Clock::now() +
      patience(shape.levelsBelow(0) + shape.levelsAbove(launch.rank) + 1);
  while (up.inbox.empty()) {
    PLAIT_RETURN_IF_ERROR(getFailure());
    if (up.ended)
      return lose(up);
    if (Clock::now() >= until)
      return timeOut(nameProcesses({std::to_string(up.rank) + " on " + up.host},
                                   launch.ranks),
                     speaksOf(up));
    PLAIT_RETURN_IF_ERROR(serve(until, /*isOpen=*/false));
  }
  std::string text = std::move(up.inbox.front());
  up.inbox.pop_front();
  return text;
}

Status TcpTree::toParent(const std::string &text) { return send(up, text); }

Status TcpTree::toChildren(const std::string &text) {
  for (Link &link : down)
    PLAIT_RETURN_IF_ERROR(send(link, text));
  return Status::success();
}

/// Sends a text in frames: thousands of processes together say more than one
/// holds.
static bool sendText(int connection, std::string_view text) {
  for (; text.size() > Frame::mostBytes; text.remove_prefix(Frame::mostBytes))
    if (!sendFrame(connection, {Frame::Kind::Part,
                                std::string(text.substr(0, Frame::mostBytes))}))
      return false;
  return sendFrame(connection, {Frame::Kind::Text, std::string(text)});
}

/// A connection that fails on writing may still hold the peer's last words.
Status TcpTree::send(Link &link, const std::string &text) {
  PLAIT_RETURN_IF_ERROR(getFailure());
  if (sendText(link.connection.get(), text))
    return Status::success();
  // It may have said why it is gone.
  Frame frame;
  while (errno != EAGAIN && receiveFrame(link.connection.get(), frame))
    if (frame.kind == Frame::Kind::Failure)
      return endWith(unpackStatus(frame.text), /*byItself=*/false);
  return lose(link);
}

//===----------------------------------------------------------------------===//
// Failing
//===----------------------------------------------------------------------===//

milliseconds TcpTree::patience(uint32_t levels) const {
  return timeLimit + levels * levelTime;
}

Status TcpTree::timeOut(const std::string &who, bool speaks) {
  return endWith(failTimedOut(timeLimit, who), speaks);
}

/// One of those that miss a process speaks: the one above it, or, where that
/// has been process 0, the first of each host.
bool TcpTree::speaksOf(const Link &link) const {
  return &link != &up ||
         (up.rank == 0 && (launch.localRank == 0 || launch.rank == 1));
}

Status TcpTree::lose(const Link &link) {
  return endWith(fail("the connection to process ", link.rank, " on ",
                      link.host, " is lost: it has ended"),
                 speaksOf(link));
}

/// The first failure wins and is sent once to everybody connected, comers
/// included. Sending must not block, for the lock is held and the peer may
/// hang.
Status TcpTree::endWith(const Status &reason, bool byItself) {
  std::lock_guard lock(mutex);
  if (!failure.ok())
    return failure;
  failure = reason;
  isByItself = byItself;
  for (Link *link : links())
    sendLastFrame(link->connection.get(),
                  {Frame::Kind::Failure, packStatus(reason)});
  for (Link &comer : comers)
    sendLastFrame(comer.connection.get(),
                  {Frame::Kind::Failure, packStatus(reason)});
  return reason;
}

Status TcpTree::getFailure() {
  std::lock_guard lock(mutex);
  return failure;
}

bool TcpTree::hasFailed() { return !getFailure().ok(); }

bool TcpTree::hasHeardOfFailure() {
  std::lock_guard lock(mutex);
  return !failure.ok() && !isByItself;
}

/// Those that are connected.
std::vector<TcpTree::Link *> TcpTree::links() {
  std::vector<Link *> all;
  if (up.connection.get() >= 0)
    all.push_back(&up);
  for (Link &link : down)
    if (link.connection.get() >= 0)
      all.push_back(&link);
  return all;
}

/// Null: `rank` is no neighbour.
TcpTree::Link *TcpTree::linkTo(uint32_t rank) {
  if (launch.rank != 0 && rank == up.rank)
    return &up;
  uint32_t first = shape.firstChildOf(launch.rank);
  return rank >= first && rank - first < down.size() ? &down[rank - first]
                                                     : nullptr;
}
