// The admin queue's commands: dispatch, Abort, Keep Alive, and the transfer of Identify data, log
// pages and features, which identify.cc, log_pages.cc and features.cc make.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/command_checks.h"
#include "transport/reactor_impl.h"

namespace furrow::transport {

namespace sc = nvme::sc;

const Controller::OpcodeHandler Controller::kAdminHandlers[] = {
    {nvme::admin::kGetLogPage, &Controller::get_log_page, true},
    {nvme::admin::kIdentify, &Controller::identify, true},
    {nvme::admin::kAbort, &Controller::abort, false},
    {nvme::admin::kSetFeatures, &Controller::set_features, true},
    {nvme::admin::kGetFeatures, &Controller::get_features, true},
    {nvme::admin::kAsyncEvent, &Controller::async_event, true},
    {nvme::admin::kKeepAlive, &Controller::keep_alive, true},
};

void Controller::succeed(Request& request, std::uint32_t dw0) {
  request.completion.dw0 = dw0;
  reactor_.complete(request, sc::kSuccess);
}

void Controller::fail(Request& request, std::uint16_t status) {
  reactor_.complete(request, status);
}

void Controller::reply(Request& request, std::span<const std::byte> data) {
  std::vector<std::byte> copy;
  const std::uint16_t status = or_interrupted([&] {
    copy.assign(data.begin(), data.end());
    return sc::kSuccess;
  });
  if (status != sc::kSuccess) return fail(request, status);
  (void)reactor_.reply(request, std::move(copy));
}

void Controller::execute(Request& request) {
  const nvme::Sqe& command = request.command;
  if (const auto status = check_command(command); status != sc::kSuccess) {
    return fail(request, status);
  }
  if (command.opc == nvme::opcode::kFabrics) return fabrics(request);
  const auto known =
      std::find_if(std::begin(kAdminHandlers), std::end(kAdminHandlers),
                   [&](const OpcodeHandler& entry) { return entry.opcode == command.opc; });
  if (known == std::end(kAdminHandlers) || (kind_ == Kind::discovery && !known->discovery)) {
    return fail(request, sc::kInvalidOpcode);
  }
  const bool serving = state_ == State::ready || state_ == State::shut_down;
  if (!serving && command.opc != nvme::admin::kKeepAlive) {
    return fail(request, sc::kCommandSequenceError);
  }
  if (transfers_data(command.opc)) {
    if (const auto status = check_sgl(request); status != sc::kSuccess) {
      return fail(request, status);
    }
    if (request.data_bytes > subsystem_.options().transfer_bytes_max) {
      return fail(request, sc::kInvalidField);
    }
  }
  (this->*known->handler)(request);
}

void Controller::keep_alive(Request& request) { succeed(request); }

void Controller::identify(Request& request) {
  std::vector<std::byte> page;
  const std::uint16_t status = or_interrupted([&] {
    page.resize(4096);
    return identify_page(request.command, page);
  });
  if (status != sc::kSuccess) return fail(request, status);
  (void)reactor_.reply(request, std::move(page));
}

void Controller::get_log_page(Request& request) {
  const nvme::Sqe& command = request.command;
  const auto log_id = static_cast<std::uint8_t>(command.cdw10);
  const std::uint32_t nsid = command.nsid;
  const bool retain_event = (command.cdw10 & 1u << 15) != 0;
  const std::uint64_t dwords =
      ((std::uint64_t{command.cdw11 & 0xffff} << 16) | command.cdw10 >> 16) + 1;
  const std::uint64_t offset = std::uint64_t{command.cdw13} << 32 | command.cdw12;
  const bool index_offset = (command.cdw14 & 1u << 23) != 0;
  if (dwords * 4 > subsystem_.options().transfer_bytes_max || offset % 4 != 0 || index_offset) {
    return fail(request, sc::kInvalidField);
  }
  if (request.data_bytes < dwords * 4) return fail(request, sc::kDataSglLengthInvalid);
  std::vector<std::byte> log;
  const std::uint16_t status = or_interrupted([&]() -> std::uint16_t {
    const auto known = log_page(log_id, command, request.connection->local_address(), log);
    if (known != sc::kSuccess) return known;
    if (offset > log.size()) return sc::kInvalidField;
    log.erase(log.begin(), log.begin() + static_cast<std::ptrdiff_t>(offset));
    log.resize(dwords * 4);
    return sc::kSuccess;
  });
  if (status != sc::kSuccess && status != sc::kCommandInterrupted) return fail(request, status);
  // The answer first, then what acknowledging the event sets free. One that failed was not read.
  bool sent = false;
  if (status == sc::kSuccess) {
    sent = reactor_.reply(request, std::move(log));
  } else {
    fail(request, status);
  }
  if (retain_event) return;
  sent ? log_page_read(log_id, nsid) : log_page_missed(log_id);
}

// Best effort (Base specification, 5.1): an asynchronous event request and a command that waits for
// a buffer are aborted; what the pool works on finishes by itself. DW0 bit 0: not aborted.
void Controller::abort(Request& request) {
  const auto sqid = static_cast<std::uint16_t>(request.command.cdw10);
  const auto cid = static_cast<std::uint16_t>(request.command.cdw10 >> 16);
  if (sqid == 0) {
    const auto end = async_events_.begin() + async_event_count_;
    const auto found = std::find_if(async_events_.begin(), end, [cid](const Request* waiting) {
      return waiting->command.cid == cid;
    });
    if (found == end) return succeed(request, 1);
    Request& aborted = **found;
    std::copy(found + 1, end, found);
    --async_event_count_;
    fail(aborted, sc::kAbortRequested);
    return succeed(request, 0);
  }
  if (aborts_ == kAbortsMax) return fail(request, sc::kAbortLimit);
  std::shared_ptr<Queue> queue;
  {
    const std::lock_guard lock(subsystem_.mutex());
    const auto found = shared.queues.find(sqid);
    if (found != shared.queues.end()) {
      queue = found->second;
      ++aborts_;
      queue->reactor->mailbox().send([self = shared_from_this(), queue, &request, cid] {
        const bool aborted = queue->reactor->abort_waiting(*queue, cid);
        self->reactor_.mailbox().send(
            [self, &request, aborted] { self->abort_done(request, aborted); });
      });
    }
  }
  if (queue == nullptr) succeed(request, 1);
}

void Controller::abort_done(Request& request, bool aborted) {
  --aborts_;
  succeed(request, aborted ? 0 : 1);
}

}  // namespace furrow::transport
