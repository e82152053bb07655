//===- UcxModule.cpp - The module that calls UCX --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For processes that no launcher of MPI has started. UCX matches messages by
// tags of 64 bits, in order, and keeps those that come early; it connects two
// processes when one of them first means to, and tells of one that has ended.
// The tag holds what MPI has beside its tags: channel and sender.
//
// That a process fails concerns all. The warning goes from each one to those
// that it talks to, and answers go back the same way: so nobody connects with
// all others in order to fail.
//
//===----------------------------------------------------------------------===//

#include "Library.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdlib>
#include <ifaddrs.h>
#include <list>
#include <map>
#include <memory>
#include <netdb.h>
#include <thread>
#include <ucp/api/ucp.h>

using namespace plait;
using namespace plait::runtime;

namespace {

Status check(ucs_status_t status, const char *call) {
  return status == UCS_OK ? Status::success()
                          : fail(call, ": ", ucs_status_string(status));
}

/// Says something of a process, beside all transfers. A warning goes on to
/// all; an answer goes the same way back. A goodbye is the last of its sender.
struct Notice {
  enum class Kind : uint32_t { Warning, Answer, Goodbye };

  Kind kind = Kind::Warning;
  uint32_t failing = 0;  // of a warning and its answer: the process that fails
  uint32_t answerer = 0; // of an answer
};
constexpr uint64_t noticeChannel = mpiChannels;

constexpr int senderShift = 32, channelShift = 56;

/// A process index is below 2^24 (Launch.h).
uint64_t tagOf(uint64_t channel, uint32_t sender, uint32_t tag) {
  return channel << channelShift | uint64_t(sender) << senderShift | tag;
}

class Library;

/// Another process that this one talks to.
struct Peer {
  Library *library;
  uint32_t index;
  ucp_ep_h end = nullptr;
  bool hasWarned = false, hasLeft = false, isLost = false;
};

/// A transfer that UCX works on, by address, until it calls back.
struct Pending {
  Library *library;
  void *cookie; // null: of a notice
  uint64_t bytes;
  uint32_t peer;
  std::vector<ucp_dt_iov_t> pieces = {};
  Notice notice = {};
  std::list<Pending>::iterator self = {};
};

class Library : public MetLibrary {
public:
  ~Library() override;

  Result<std::string> open(const std::string &address) override;
  Status connect(World world, std::vector<std::string> addresses,
                 std::span<const uint32_t> peers) override;
  Result<World> start() override { return world; }
  Status begin(const MpiTransfer &what, void *cookie) override;
  Status poll(std::vector<void *> &finished) override;
  void warn() override;
  void answer(uint32_t peer) override;
  Status readNotices(Notices &notices) override;
  void finish() override;

  // What UCX calls back, from within progress().
  void end(Pending &pending, ucs_status_t status);
  void take(Pending &pending, ucs_status_t status,
            const ucp_tag_recv_info_t &info);
  void hear(const ucp_tag_recv_info_t &info);
  void lose(Peer &peer, ucs_status_t status);

private:
  Status link(uint32_t index);
  Pending &add(void *cookie, uint32_t peer);
  void send(Peer &peer, uint64_t tag, const void *bytes, size_t count,
            ucp_datatype_t type, Pending &pending);
  void send(Peer &peer, const Notice &notice);
  Status listen();
  Status progress();
  void spread(const Notice &notice, uint32_t from);
  std::string nameOf(uint32_t index) const;
  void failWith(Status status);

  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  World world;
  std::vector<std::string> addresses; // by process
  std::map<uint32_t, Peer> peers;     // that this one talks to
  std::list<Pending> pending;
  size_t sending = 0; // of them
  std::vector<void *> ready;
  Status failure = Status::success(); // not yet told
  Notice incoming;                    // UCX writes the next one here
  Notices heard;                      // not yet read
  std::map<uint32_t, uint32_t> ways;  // to processes that fail, by them
};

//===----------------------------------------------------------------------===//
// Connections
//===----------------------------------------------------------------------===//

/// The network interface that has the numeric `address`; empty: none has.
std::string interfaceOf(const std::string &address) {
  ifaddrs *all = nullptr;
  if (getifaddrs(&all) != 0)
    return "";
  std::string found;
  for (ifaddrs *one = all; one && found.empty(); one = one->ifa_next) {
    int family = one->ifa_addr ? one->ifa_addr->sa_family : AF_UNSPEC;
    if (family != AF_INET && family != AF_INET6)
      continue;
    char text[NI_MAXHOST] = "";
    getnameinfo(one->ifa_addr,
                family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6),
                text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
    if (address == text)
      found = one->ifa_name;
  }
  freeifaddrs(all);
  return found.substr(0, found.find(':')); // that of an alias
}

/// UCX chooses among all networks that it knows, and takes the one of a bridge
/// of containers for as good as any. The one by which this process has reached
/// the others is known to lead to them. Who names others in UCX's own variables
/// knows more.
Result<std::string> Library::open(const std::string &address) {
  ucp_config_t *config = nullptr;
  PLAIT_RETURN_IF_ERROR(
      check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read"));
  if (!std::getenv("UCX_TLS")) {
    ucp_config_modify(config, "TLS", "tcp");
    std::string device = interfaceOf(address);
    if (!device.empty() && !std::getenv("UCX_NET_DEVICES"))
      ucp_config_modify(config, "NET_DEVICES", device.c_str());
  }
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG;
  Status made = check(ucp_init(&params, config, &context), "ucp_init");
  ucp_config_release(config);
  PLAIT_RETURN_IF_ERROR(made);
  ucp_worker_params_t mode = {};
  // One thread makes all calls after another one has made it.
  mode.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  mode.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  PLAIT_RETURN_IF_ERROR(
      check(ucp_worker_create(context, &mode, &worker), "ucp_worker_create"));
  ucp_address_t *mine = nullptr;
  size_t bytes = 0;
  PLAIT_RETURN_IF_ERROR(check(ucp_worker_get_address(worker, &mine, &bytes),
                              "ucp_worker_get_address"));
  std::string text(reinterpret_cast<const char *>(mine), bytes);
  ucp_worker_release_address(worker, mine);
  return text;
}

Status Library::connect(World others, std::vector<std::string> places,
                        std::span<const uint32_t> partners) {
  world = std::move(others);
  world.largestTag = UINT32_MAX;
  addresses = std::move(places);
  for (uint32_t partner : partners)
    PLAIT_RETURN_IF_ERROR(link(partner));
  return listen();
}

/// A process that only receives does this as well: it is told of the end of
/// those that it has an end to.
Status Library::link(uint32_t index) {
  auto [found, isNew] = peers.try_emplace(index, Peer{this, index});
  if (!isNew)
    return Status::success();
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address =
      reinterpret_cast<const ucp_address_t *>(addresses[index].data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = &found->second;
  params.err_handler.cb = [](void *peer, ucp_ep_h, ucs_status_t status) {
    Peer &lost = *static_cast<Peer *>(peer);
    lost.library->lose(lost, status);
  };
  ucs_status_t made = ucp_ep_create(worker, &params, &found->second.end);
  return made == UCS_OK ? Status::success()
                        : fail("cannot reach ", nameOf(index), ": ",
                               ucs_status_string(made));
}

/// Drops what has not been sent: who leaves well has waited for it.
Library::~Library() {
  ucp_request_param_t force = {};
  force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  force.flags = UCP_EP_CLOSE_FLAG_FORCE;
  for (auto &[index, peer] : peers)
    if (peer.end)
      if (void *closing = ucp_ep_close_nbx(peer.end, &force);
          UCS_PTR_IS_PTR(closing)) {
        while (ucp_request_check_status(closing) == UCS_INPROGRESS)
          ucp_worker_progress(worker);
        ucp_request_free(closing);
      }
  if (worker)
    ucp_worker_destroy(worker);
  if (context)
    ucp_cleanup(context);
}

//===----------------------------------------------------------------------===//
// Transfers
//===----------------------------------------------------------------------===//

/// The rows of a region, joined where they follow each other.
std::vector<ucp_dt_iov_t> piecesOf(const Region &region) {
  std::vector<ucp_dt_iov_t> pieces;
  for (int64_t plane = 0; plane < region.planes; ++plane)
    for (int64_t row = 0; row < region.rows; ++row) {
      std::byte *begin =
          region.begin + plane * region.planeStride + row * region.rowStride;
      if (!pieces.empty() && static_cast<std::byte *>(pieces.back().buffer) +
                                     pieces.back().length ==
                                 begin)
        pieces.back().length += size_t(region.bytes);
      else
        pieces.push_back({begin, size_t(region.bytes)});
    }
  return pieces;
}

Pending &Library::add(void *cookie, uint32_t peer) {
  Pending &added = pending.emplace_back(Pending{this, cookie, 0, peer});
  added.self = std::prev(pending.end());
  return added;
}

/// Begins nothing to or from a process that is gone: its end has been
/// told.
Status Library::begin(const MpiTransfer &what, void *cookie) {
  if (what.kind != MpiTransfer::Kind::Send &&
      what.kind != MpiTransfer::Kind::Receive)
    return Status::failure("there are no collectives over UCX");
  PLAIT_RETURN_IF_ERROR(link(what.peer));
  Peer &peer = peers.at(what.peer);
  if (peer.isLost)
    return Status::success();
  Pending &job = add(cookie, what.peer);
  job.pieces = piecesOf(what.region);
  for (const ucp_dt_iov_t &piece : job.pieces)
    job.bytes += piece.length;
  bool isWhole = job.pieces.size() == 1;
  void *bytes = isWhole ? job.pieces[0].buffer : job.pieces.data();
  size_t count = isWhole ? job.pieces[0].length : job.pieces.size();
  ucp_datatype_t type = isWhole ? ucp_dt_make_contig(1) : ucp_dt_make_iov();
  if (what.kind == MpiTransfer::Kind::Send) {
    send(peer, tagOf(uint64_t(what.channel), world.index, what.tag), bytes,
         count, type, job);
    return Status::success();
  }
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_DATATYPE |
                       UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.datatype = type;
  param.user_data = &job;
  param.cb.recv = [](void *request, ucs_status_t status,
                     const ucp_tag_recv_info_t *info, void *data) {
    Pending &done = *static_cast<Pending *>(data);
    done.library->take(done, status, *info);
    ucp_request_free(request);
  };
  void *request = ucp_tag_recv_nbx(
      worker, bytes, count, tagOf(uint64_t(what.channel), what.peer, what.tag),
      ~uint64_t(0), &param);
  return UCS_PTR_IS_ERR(request)
             ? check(UCS_PTR_STATUS(request), "ucp_tag_recv_nbx")
             : Status::success();
}

void Library::send(Peer &peer, uint64_t tag, const void *bytes, size_t count,
                   ucp_datatype_t type, Pending &job) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_DATATYPE |
                       UCP_OP_ATTR_FIELD_USER_DATA;
  param.datatype = type;
  param.user_data = &job;
  param.cb.send = [](void *request, ucs_status_t status, void *data) {
    Pending &done = *static_cast<Pending *>(data);
    done.library->end(done, status);
    ucp_request_free(request);
  };
  ++sending;
  void *request = ucp_tag_send_nbx(peer.end, bytes, count, tag, &param);
  if (!UCS_PTR_IS_PTR(request)) // done, or failed, at once
    end(job, UCS_PTR_RAW_STATUS(request));
}

/// A send that has failed is one to a process that is gone.
void Library::end(Pending &job, ucs_status_t status) {
  --sending;
  if (status != UCS_OK)
    lose(peers.at(job.peer), status);
  else if (job.cookie)
    ready.push_back(job.cookie);
  pending.erase(job.self);
}

void Library::take(Pending &job, ucs_status_t status,
                   const ucp_tag_recv_info_t &info) {
  bool isTooLong = status == UCS_ERR_MESSAGE_TRUNCATED;
  if (isTooLong || (status == UCS_OK && info.length != job.bytes))
    failWith(fail(nameOf(job.peer), " sends ", isTooLong ? "more than " : "",
                  isTooLong ? job.bytes : info.length, " bytes where ",
                  job.bytes, " are awaited"));
  else if (status == UCS_OK)
    ready.push_back(job.cookie);
  else if (status != UCS_ERR_CANCELED)
    lose(peers.at(job.peer), status);
  pending.erase(job.self);
}

Status Library::progress() {
  // A few: the engine has other things to look at.
  for (int i = 0; i < 16 && ucp_worker_progress(worker); ++i)
    ;
  return std::exchange(failure, Status::success());
}

Status Library::poll(std::vector<void *> &finished) {
  Status status = progress();
  finished.insert(finished.end(), ready.begin(), ready.end());
  ready.clear();
  return status;
}

//===----------------------------------------------------------------------===//
// Ends
//===----------------------------------------------------------------------===//

std::string Library::nameOf(uint32_t index) const {
  return "process " + std::to_string(index) + " on " +
         world.hostNames[world.hosts[index]];
}

void Library::failWith(Status status) {
  if (failure.ok())
    failure = std::move(status);
}

/// One that has warned has said why; one that has said goodbye may go.
void Library::lose(Peer &peer, ucs_status_t status) {
  if (std::exchange(peer.isLost, true) || peer.hasWarned || peer.hasLeft)
    return;
  bool hasEnded =
      status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT;
  failWith(fail("the connection to ", nameOf(peer.index), " is lost: ",
                hasEnded ? "it has ended, or cannot be reached any more"
                         : ucs_status_string(status)));
}

/// One receive for notices of anybody is always posted.
Status Library::listen() {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                       UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.user_data = this;
  param.cb.recv = [](void *request, ucs_status_t status,
                     const ucp_tag_recv_info_t *info, void *library) {
    if (status == UCS_OK)
      static_cast<Library *>(library)->hear(*info);
    ucp_request_free(request);
  };
  void *request = ucp_tag_recv_nbx(worker, &incoming, sizeof(incoming),
                                   tagOf(noticeChannel, 0, 0),
                                   ~uint64_t(0) << channelShift, &param);
  return UCS_PTR_IS_ERR(request)
             ? check(UCS_PTR_STATUS(request), "ucp_tag_recv_nbx")
             : Status::success();
}

/// Each of several that fail learns of the first one, which speaks for all;
/// what others say goes to those that they talk to.
void Library::hear(const ucp_tag_recv_info_t &info) {
  Notice notice = incoming;
  uint32_t from = uint32_t(info.sender_tag >> senderShift) & 0xffffff;
  bool isKnown = info.length == sizeof(notice) && from < world.count &&
                 notice.failing < world.count &&
                 notice.answerer < world.count && link(from).ok();
  if (Status status = listen(); !status.ok())
    failWith(status);
  if (!isKnown)
    return;
  uint32_t failing = notice.failing;
  if (notice.kind == Notice::Kind::Goodbye) {
    peers.at(from).hasLeft = true;
  } else if (notice.kind == Notice::Kind::Answer) {
    if (failing == world.index)
      heard.answered.push_back(notice.answerer);
    else if (auto way = ways.find(failing); way != ways.end())
      send(peers.at(way->second), notice);
  } else {
    peers.at(from).hasWarned = true;
    bool isFirst = ways.empty() || failing < ways.begin()->first;
    if (!ways.try_emplace(failing, from).second || failing == world.index)
      return;
    heard.failed.push_back(failing);
    if (isFirst)
      spread(notice, from);
  }
}

void Library::send(Peer &peer, const Notice &notice) {
  if (peer.isLost)
    return;
  Pending &job = add(/*cookie=*/nullptr, peer.index);
  job.notice = notice;
  send(peer, tagOf(noticeChannel, world.index, 0), &job.notice, sizeof(notice),
       ucp_dt_make_contig(1), job);
}

void Library::spread(const Notice &notice, uint32_t from) {
  for (auto &[index, peer] : peers)
    if (index != from)
      send(peer, notice);
}

/// The engine polls for notices afterwards, by which this one leaves as well.
void Library::warn() {
  ways.try_emplace(world.index, world.index);
  spread({Notice::Kind::Warning, world.index}, world.index);
}

void Library::answer(uint32_t failing) {
  if (auto way = ways.find(failing); way != ways.end())
    send(peers.at(way->second), {Notice::Kind::Answer, failing, world.index});
}

/// A warning explains a lost connection and so replaces its failure.
Status Library::readNotices(Notices &notices) {
  Status status = progress();
  auto move = [](std::vector<uint32_t> &from, std::vector<uint32_t> &to) {
    to.insert(to.end(), from.begin(), from.end());
    from.clear();
  };
  move(heard.failed, notices.failed);
  move(heard.answered, notices.answered);
  return notices.failed.empty() ? status : Status::success();
}

/// Waits until all others have said goodbye too, and what is said here is out:
/// a connection that is closed before loses what is on its way.
void Library::finish() {
  for (auto &[index, peer] : peers)
    send(peer, Notice{Notice::Kind::Goodbye});
  auto isDone = [](const auto &entry) {
    return entry.second.hasLeft || entry.second.isLost;
  };
  while (sending > 0 || !std::all_of(peers.begin(), peers.end(), isDone)) {
    (void)progress();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ucp_request_param_t none = {};
  void *flushing = ucp_worker_flush_nbx(worker, &none);
  if (!UCS_PTR_IS_PTR(flushing))
    return;
  while (ucp_request_check_status(flushing) == UCS_INPROGRESS)
    ucp_worker_progress(worker);
  ucp_request_free(flushing);
}

} // namespace

extern "C" MetLibrary *plaitOpenUcxLibrary() { return new Library; }
