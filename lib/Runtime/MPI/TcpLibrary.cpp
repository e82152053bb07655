//===- TcpLibrary.cpp - MPI interface over TCP ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the engine asks of MPI, over one TCP connection for each pair of
// processes that talk: sends and receives by channel and tag, in order, and
// notices, which go on to processes that are not connected with their origin.
// There are no collectives: TcpRendezvous has its tree for those.
//
// Sockets do not block. A message that is awaited goes straight to where it
// belongs; one that comes early is put aside as bytes, so that those behind it
// can be read.
//
//===----------------------------------------------------------------------===//

#include "TcpLibrary.h"

#include "Core/Reception.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <map>
#include <sys/socket.h>
#include <sys/uio.h>
#include <thread>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Before the bytes of a message. In the byte order of the hosts, which are all
/// alike. `bytes` are of the region alone.
struct Header {
  uint32_t channel = 0, tag = 0;
  uint64_t bytes = 0;
};
/// Channels of headers that no bytes follow. A warning goes on to all
/// processes; its tag is the one that fails. An answer goes back the same way:
/// its tag is that process, its `bytes` the one that has heard it. A goodbye is
/// the last of its sender.
constexpr uint32_t warningChannel = UINT32_MAX, answerChannel = UINT32_MAX - 1,
                   goodbyeChannel = UINT32_MAX - 2;

/// Pieces of memory that one call of the system takes. Less than the system's
/// limit (IOV_MAX, 1024).
constexpr size_t maxPieces = 64;

/// All bytes that are sent, gaps left out.
uint64_t sizeOf(const Region &region) {
  return uint64_t(region.planes) * region.rows * region.bytes;
}

/// Adds the pieces of `region` from byte `offset` on, as many as there is room
/// for. A partial send or receive goes on in the middle of a row, which is why
/// this starts from an offset and not from a row.
void addPieces(const Region &region, uint64_t offset,
               std::vector<iovec> &pieces) {
  uint64_t end = sizeOf(region);
  while (offset < end && pieces.size() < maxPieces) {
    int64_t row = int64_t(offset) / region.bytes;
    int64_t within = int64_t(offset) % region.bytes;
    std::byte *begin = region.begin + row / region.rows * region.planeStride +
                       row % region.rows * region.rowStride + within;
    pieces.push_back({begin, size_t(region.bytes - within)});
    offset += uint64_t(region.bytes - within);
  }
}

/// Copies a message that came early; sizes have been compared.
void copyInto(const Region &region, std::span<const std::byte> bytes) {
  std::vector<iovec> pieces;
  for (uint64_t offset = 0; offset < bytes.size(); pieces.clear()) {
    addPieces(region, offset, pieces);
    for (const iovec &piece : pieces) {
      std::memcpy(piece.iov_base, bytes.data() + offset, piece.iov_len);
      offset += piece.iov_len;
    }
  }
}

/// A message that leaves, behind those submitted before it.
struct Outgoing {
  Header header;
  Region region;
  void *cookie = nullptr;
  uint64_t sent = 0; // of header and region together
};

/// A receive whose message has not begun to come.
struct Awaited {
  Region region;
  void *cookie;
};

/// A message that came before anybody waited for it.
struct Early {
  std::vector<std::byte> bytes;
  bool isComplete = false;
  std::optional<Awaited> awaited; // since it has begun to come
};

/// The connection to one other process, which may not be there yet. Invariant:
/// for each key (channel and tag), `awaited` and `aside` are not both
/// non-empty, but for messages that began to come early and have been awaited
/// since. Messages of a key are matched in order, as MPI does.
class Peer {
public:
  explicit Peer(std::string name) : name(std::move(name)) {}

  bool isConnected() const { return connection.get() >= 0; }
  void connect(Socket made) {
    connection = std::move(made);
    int flags = fcntl(connection.get(), F_GETFL);
    fcntl(connection.get(), F_SETFL, flags | O_NONBLOCK);
  }

  void send(const Header &header, const Region &region, void *cookie) {
    outgoing.push_back({header, region, cookie});
  }
  /// Adds the cookie to `finished` where it is there already.
  Status receive(const Header &header, const Awaited &awaited,
                 std::vector<void *> &finished);
  /// Sends a warning or an answer, before all messages that have not begun to
  /// leave: these are dropped.
  void sendNotice(const Header &notice);
  /// Reads and writes as much as can be done at once.
  Status progress(std::vector<void *> &finished);

  /// Warnings and answers since the last call.
  std::vector<Header> takeNotices() { return std::exchange(notices, {}); }
  bool hasLeft() const { return left; }
  bool hasSentAll() const { return outgoing.empty(); }

private:
  using Key = std::pair<uint32_t, uint32_t>; // channel and tag

  Status write(std::vector<void *> &finished);
  Status read(std::vector<void *> &finished);
  Status beginMessage();
  void endMessage(std::vector<void *> &finished);
  /// Says so once: warnings of others are still to be read.
  Status failLost(const char *why) {
    lost = true;
    return fail("the connection to ", name, " is lost: ", why);
  }
  Status checkSize(const Region &region, uint64_t bytes) const {
    return sizeOf(region) == bytes
               ? Status::success()
               : fail(name, " sends ", bytes, " bytes where ", sizeOf(region),
                      " are awaited");
  }

  Socket connection;
  std::string name; // for messages
  bool warned = false, left = false, lost = false;
  std::vector<Header> notices;
  std::vector<iovec> pieces; // scratch
  std::deque<Outgoing> outgoing;

  Header incoming;
  uint64_t received = 0;        // of header and bytes together
  std::optional<Awaited> taker; // of the bytes that come; none: `early`
  Early *early = nullptr;
  std::map<Key, std::deque<Awaited>> awaited;
  std::map<Key, std::deque<Early>> aside;
};

/// The first message of the key that is put aside and nobody has asked for; one
/// that has not come to its end is marked and completed by endMessage().
/// Otherwise the receive waits.
Status Peer::receive(const Header &header, const Awaited &wanted,
                     std::vector<void *> &finished) {
  Key key = {header.channel, header.tag};
  // Has it come already?
  auto found = aside.find(key);
  if (found != aside.end())
    for (Early &one : found->second) {
      if (one.awaited)
        continue;
      PLAIT_RETURN_IF_ERROR(checkSize(wanted.region, one.bytes.size()));
      if (!one.isComplete) {
        one.awaited = wanted;
        return Status::success();
      }
      copyInto(wanted.region, one.bytes); // the first: those before are taken
      finished.push_back(wanted.cookie);
      found->second.pop_front();
      if (found->second.empty())
        aside.erase(found);
      return Status::success();
    }
  awaited[key].push_back(wanted);
  return Status::success();
}

/// A message that has begun has to be finished, or the receiver would take the
/// next header for its bytes.
void Peer::sendNotice(const Header &notice) {
  std::erase_if(outgoing, [](const Outgoing &one) {
    return one.sent == 0 && one.header.channel < goodbyeChannel;
  });
  send(notice, {}, nullptr);
}

/// Never waits. A connection that is lost fails once and is silent afterwards.
Status Peer::progress(std::vector<void *> &finished) {
  if (lost || !isConnected())
    return Status::success();
  PLAIT_RETURN_IF_ERROR(write(finished));
  return read(finished); // nothing where it has left
}

/// 1. Header and pieces of the first message in one call of the system.
/// 2. What the socket does not take is left for the next time.
/// 3. A peer that has closed its end may have sent a warning before: reading
///    finds out, unless it has said goodbye, after which nothing is owed to it.
/// 4. A message that is out is done for its sender: the bytes may change.
Status Peer::write(std::vector<void *> &finished) {
  while (!outgoing.empty()) {
    // 1. A header that has left in part goes on where it was.
    Outgoing &first = outgoing.front();
    pieces.clear();
    if (first.sent < sizeof(Header))
      pieces.push_back({reinterpret_cast<char *>(&first.header) + first.sent,
                        size_t(sizeof(Header) - first.sent)});
    uint64_t done = std::max<uint64_t>(first.sent, sizeof(Header));
    addPieces(first.region, done - sizeof(Header), pieces);
    msghdr message = {};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    ssize_t count = sendmsg(connection.get(), &message, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR)
      continue;
    // 2. Full.
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      break;
    // 3. Closed.
    if (count < 0 && (errno == EPIPE || errno == ECONNRESET)) {
      if (left) // and needs no answer
        outgoing.clear();
      break; // it may have said why: that is read
    }
    if (count < 0)
      return failLost(std::strerror(errno));
    first.sent += uint64_t(count);
    if (first.sent < sizeof(Header) + sizeOf(first.region))
      continue;
    // 4. Out; warnings and goodbyes have no cookie.
    if (first.cookie)
      finished.push_back(first.cookie);
    outgoing.pop_front();
  }
  return Status::success();
}

/// Reads until the socket is empty. What comes next is known at any time: the
/// rest of a header, of a message that is awaited, or of one that is put aside.
/// The end of the connection is a failure unless the peer has warned, which
/// says why.
Status Peer::read(std::vector<void *> &finished) {
  while (!left) {
    pieces.clear();
    // The rest of a header comes first, and by itself: what follows depends on
    // it.
    if (received < sizeof(Header))
      pieces.push_back({reinterpret_cast<char *>(&incoming) + received,
                        size_t(sizeof(Header) - received)});
    else if (taker)
      addPieces(taker->region, received - sizeof(Header), pieces);
    else
      pieces.push_back({early->bytes.data() + (received - sizeof(Header)),
                        size_t(sizeof(Header) + incoming.bytes - received)});
    ssize_t count = readv(connection.get(), pieces.data(), int(pieces.size()));
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return Status::success();
    if (count == 0 && warned)
      return Status::success();
    if (count <= 0)
      return failLost(count < 0 ? std::strerror(errno) : "it has ended");
    bool wasHeader = received < sizeof(Header);
    received += uint64_t(count);
    if (wasHeader && received == sizeof(Header))
      PLAIT_RETURN_IF_ERROR(beginMessage());
    if (received >= sizeof(Header) &&
        received == sizeof(Header) + incoming.bytes)
      endMessage(finished);
  }
  return Status::success();
}

/// Its header is here. Decides where the bytes go. An early message is
/// allocated as a whole: its size is the sender's word, who is trusted.
Status Peer::beginMessage() {
  warned |= incoming.channel == warningChannel;
  left |= incoming.channel == goodbyeChannel;
  if (incoming.channel >= goodbyeChannel) {
    notices.push_back(incoming);
    incoming.bytes = 0;
    return Status::success();
  }
  Key key = {incoming.channel, incoming.tag};
  auto found = awaited.find(key);
  if (found == awaited.end()) {
    early = &aside[key].emplace_back();
    early->bytes.resize(incoming.bytes);
    return Status::success();
  }
  taker = found->second.front();
  found->second.pop_front();
  if (found->second.empty())
    awaited.erase(found);
  return checkSize(taker->region, incoming.bytes);
}

/// Warnings and goodbyes have nothing to finish.
void Peer::endMessage(std::vector<void *> &finished) {
  received = 0;
  if (taker)
    finished.push_back(taker->cookie);
  taker.reset();
  if (!early)
    return;
  early->isComplete = true;
  if (early->awaited) { // then those before are taken
    copyInto(early->awaited->region, early->bytes);
    finished.push_back(early->awaited->cookie);
    auto found = aside.find({incoming.channel, incoming.tag});
    found->second.pop_front();
    if (found->second.empty())
      aside.erase(found);
  }
  early = nullptr;
}

/// The place where a process is reached.
struct Place {
  std::string address, host;
  uint16_t port;
};

/// Port, host and address with blanks between; an empty address at the end.
std::string print(const Place &place) {
  return std::to_string(place.port) + " " + place.host + " " + place.address;
}

/// The address is the rest, for IPv6 has colons but no blanks.
Place parsePlace(const std::string &text) {
  size_t first = text.find(' '), second = text.find(' ', first + 1);
  return {text.substr(second + 1), text.substr(first + 1, second - first - 1),
          uint16_t(std::stoul(text))};
}

/// `ready` holds what became complete outside of poll(), until poll() reports
/// it.
class TcpLibrary : public MpiLibrary {
public:
  TcpLibrary(World world, std::vector<Place> places, Reception door,
             std::chrono::milliseconds timeLimit)
      : world(std::move(world)), places(std::move(places)),
        door(std::move(door)), timeLimit(timeLimit), peers(this->world.count) {}

  /// Links two processes: the one with the higher index connects to the other.
  Status link(uint32_t index);

  Result<World> start() override { return world; }
  Status begin(const MpiTransfer &what, void *cookie) override;
  Status poll(std::vector<void *> &finished) override;
  void warn() override;
  void answer(uint32_t peer) override;
  Status readNotices(Notices &notices) override;
  void finish() override;

private:
  Status admit();
  Status progress(std::vector<void *> &finished);
  void hear(uint32_t from, const Header &notice);
  void passOn(const Header &notice, uint32_t from);

  World world;
  std::vector<Place> places; // by process
  Reception door;
  std::chrono::milliseconds timeLimit;
  std::vector<std::unique_ptr<Peer>> peers; // by process, null: no link
  std::vector<uint32_t> linked;             // those that were not null
  std::vector<void *> ready;
  Notices heard;                     // not yet read
  std::map<uint32_t, uint32_t> ways; // to processes that fail, by them
};

} // namespace

Status TcpLibrary::link(uint32_t index) {
  if (peers[index])
    return Status::success();
  const Place &place = places[index];
  std::string name = "process " + std::to_string(index) + " on " + place.host;
  peers[index] = std::make_unique<Peer>(name);
  linked.push_back(index);
  if (index > world.index)
    return Status::success();
  // It listens, or is gone.
  auto made =
      connectTo(place.address, place.port, std::chrono::milliseconds(0));
  if (!made.ok())
    return fail("cannot reach ", name, " at ", made.status().message());
  PLAIT_RETURN_IF_ERROR(setTimeLimit(made->get(), timeLimit));
  Greeting mine = {.purpose = Greeting::Purpose::Data,
                   .rank = world.index,
                   .ranks = world.count};
  if (!sendAll(made->get(), &mine, sizeof(mine)))
    return systemFailure("cannot reach " + name);
  peers[index]->connect(std::move(*made));
  return Status::success();
}

/// Those that have connected to this process.
Status TcpLibrary::admit() {
  auto arrivals = door.serve(timeLimit);
  if (!arrivals.ok())
    return arrivals.status();
  for (Reception::Arrival &arrival : *arrivals) {
    const Greeting &greeting = arrival.greeting;
    uint32_t index = greeting.rank;
    bool isKnown = greeting.purpose == Greeting::Purpose::Data &&
                   greeting.ranks == world.count && index > world.index &&
                   index < world.count;
    if (!isKnown) // a stranger
      continue;
    PLAIT_RETURN_IF_ERROR(link(index));
    if (!peers[index]->isConnected())
      peers[index]->connect(std::move(arrival.connection));
  }
  return Status::success();
}

/// Nothing is written here: the engine's thread polls next.
Status TcpLibrary::begin(const MpiTransfer &what, void *cookie) {
  if (what.kind != MpiTransfer::Kind::Send &&
      what.kind != MpiTransfer::Kind::Receive)
    return Status::failure("there are no collectives over TCP");
  PLAIT_RETURN_IF_ERROR(link(what.peer));
  Header header = {uint32_t(what.channel), what.tag, sizeOf(what.region)};
  Peer &peer = *peers[what.peer];
  if (what.kind == MpiTransfer::Kind::Receive)
    return peer.receive(header, {what.region, cookie}, ready);
  peer.send(header, what.region, cookie);
  return Status::success();
}

Status TcpLibrary::poll(std::vector<void *> &finished) {
  finished.insert(finished.end(), ready.begin(), ready.end());
  ready.clear();
  return progress(finished);
}

/// All peers are served even where one has failed.
Status TcpLibrary::progress(std::vector<void *> &finished) {
  Status first = admit();
  for (uint32_t index : linked) {
    Status status = peers[index]->progress(finished);
    if (!status.ok() && first.ok())
      first = status;
    for (const Header &notice : peers[index]->takeNotices())
      hear(index, notice);
  }
  return first;
}

/// Each of several that fail learns of the first one, which speaks for all;
/// what others say goes to those that they are linked with.
void TcpLibrary::hear(uint32_t from, const Header &notice) {
  if (notice.tag >= world.count || notice.bytes >= world.count)
    return;
  if (notice.channel == answerChannel && notice.tag == world.index) {
    heard.answered.push_back(uint32_t(notice.bytes));
  } else if (notice.channel == answerChannel) {
    if (auto way = ways.find(notice.tag); way != ways.end())
      peers[way->second]->sendNotice(notice);
  } else if (notice.channel == warningChannel && !ways.count(notice.tag)) {
    bool isFirst = ways.empty() || notice.tag < ways.begin()->first;
    ways[notice.tag] = from;
    if (notice.tag == world.index)
      return;
    heard.failed.push_back(notice.tag);
    if (isFirst)
      passOn(notice, from);
  }
}

void TcpLibrary::passOn(const Header &notice, uint32_t from) {
  for (uint32_t index : linked)
    if (index != from)
      peers[index]->sendNotice(notice);
}

/// The engine polls for notices afterwards, by which this one leaves as well.
void TcpLibrary::warn() {
  ways.try_emplace(world.index, world.index);
  passOn({warningChannel, world.index, 0}, world.index);
}

void TcpLibrary::answer(uint32_t peer) {
  if (auto way = ways.find(peer); way != ways.end())
    peers[way->second]->sendNotice({answerChannel, peer, world.index});
}

/// A warning explains a lost connection and so replaces its failure.
Status TcpLibrary::readNotices(Notices &notices) {
  Status status = progress(ready);
  auto take = [](std::vector<uint32_t> &from, std::vector<uint32_t> &to) {
    to.insert(to.end(), from.begin(), from.end());
    from.clear();
  };
  take(heard.failed, notices.failed);
  take(heard.answered, notices.answered);
  return notices.failed.empty() ? status : Status::success();
}

/// Waits until all others have said goodbye too: closing a socket with unread
/// bytes in it would reset the connection and lose what is still on its way.
void TcpLibrary::finish() {
  for (uint32_t index : linked)
    peers[index]->send({goodbyeChannel, 0, 0}, {}, nullptr);
  std::vector<uint32_t> left = linked;
  while (!left.empty()) {
    (void)admit();
    // Who has said goodbye may be gone.
    std::erase_if(left, [&](uint32_t index) {
      Peer &peer = *peers[index];
      return (peer.hasLeft() && peer.hasSentAll()) ||
             !peer.progress(ready).ok();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Result<std::unique_ptr<MpiLibrary>>
runtime::connectOverTcp(Rendezvous &processes, std::span<const uint32_t> peers,
                        const std::string &address,
                        const std::string &firstAddress,
                        std::chrono::milliseconds timeLimit) {
  const ProcessPlace &here = processes.place();
  // 1. Descriptors for all connections, and the port.
  Status prepared =
      allowDescriptors(peers.size() + Reception::mostDescriptors, "a process");
  auto door = Reception::open(0);
  if (prepared.ok())
    prepared = door.status();
  PLAIT_RETURN_IF_ERROR(processes.agree(prepared));
  // 2. Places, by process.
  auto texts = processes.exchange(print({address, here.host, door->port()}));
  if (!texts.ok())
    return texts.status();
  std::vector<Place> places;
  for (const std::string &text : *texts) {
    places.push_back(parsePlace(text));
    if (places.back().address.empty())
      places.back().address = firstAddress;
  }
  MpiLibrary::World world;
  world.index = here.index;
  world.count = here.count;
  world.localIndex = here.localIndex;
  world.largestTag = UINT32_MAX;
  world.host = here.host;
  world.hosts = here.hosts;
  for (uint32_t i = 0; i < here.count; ++i)
    if (world.hosts[i] == world.hostNames.size())
      world.hostNames.push_back(places[i].host);
  // 3. Connections: to those before this process, which listen by now. Those
  // behind it come when they like.
  auto library = std::make_unique<TcpLibrary>(
      std::move(world), std::move(places), std::move(*door), timeLimit);
  for (uint32_t peer : peers)
    PLAIT_RETURN_IF_ERROR(library->link(peer));
  return std::unique_ptr<MpiLibrary>(std::move(library));
}
