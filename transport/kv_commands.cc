#include "transport/kv_commands.h"

#include <algorithm>
#include <utility>

#include "transport/command_checks.h"
#include "transport/io_commands.h"
#include "transport/kv_list.h"
#include "transport/reactor_impl.h"

namespace furrow::transport {

namespace sc = nvme::sc;

namespace {

std::uint8_t options_of(const nvme::Sqe& command) {
  return static_cast<std::uint8_t>(command.cdw11 >> 8);
}

// Key bytes 0-7 are in CDW2-3, 8-15 in CDW14-15; bytes beyond the length are ignored. A length
// above 16 gives an invalid key.
Key key_of(const nvme::Sqe& command) {
  Key key;
  const auto length = static_cast<std::uint8_t>(command.cdw11);
  if (length > Key::kBytesMax) return key;
  std::uint32_t words[4] = {command.cdw2, command.cdw3, command.cdw14, command.cdw15};
  std::memcpy(key.bytes.data(), words, length);
  key.length = length;
  return key;
}

std::uint16_t status_of(const PageOp& op) {
  switch (op.status.code()) {
    case Code::ok:
      return sc::kSuccess;
    case Code::not_found:
      return sc::kKeyNotFound;
    case Code::exists:
      return sc::kKeyExists;
    case Code::no_space:
      return sc::kCapacityExceeded;
    case Code::corrupt:
      return sc::kUnrecovered;
    case Code::io_error:
      return op.kind == PageOp::Kind::put || op.kind == PageOp::Kind::remove ? sc::kInternalError
                                                                             : sc::kUnrecovered;
    case Code::too_large:
      return sc::kInvalidValueSize;
    case Code::busy:
    case Code::late:
      return sc::kNamespaceNotReady;
    case Code::aborted:
      return sc::kAbortRequested;
    default:
      return sc::kInternalError;
  }
}

std::uint32_t round_up(std::uint32_t bytes, std::uint32_t to) { return (bytes + to - 1) / to * to; }

void no_result_yet(PageOp&) {}  // everything happens in on_released

}  // namespace

KvCommands::Handler KvCommands::handler(std::uint8_t opcode) {
  switch (opcode) {
    case nvme::kv::kStore:
      return &KvCommands::store;
    case nvme::kv::kRetrieve:
      return &KvCommands::retrieve;
    case nvme::kv::kDelete:
      return &KvCommands::remove;
    case nvme::kv::kExist:
      return &KvCommands::exist;
    case nvme::kv::kList:
      return &KvCommands::list;
    case nvme::kv::kFlush:
      return &KvCommands::flush;
    default:
      return nullptr;
  }
}

void KvCommands::execute(LocalNamespace& ns, Request& request) {
  const std::uint8_t opcode = request.command.opc;
  const Handler run = handler(opcode);
  if (run == nullptr) return io_.complete(request, sc::kInvalidOpcode);
  if (transfers_data(opcode)) {
    if (const auto status = io_.check_data(request); status != sc::kSuccess) {
      return io_.complete(request, status);
    }
  }
  (this->*run)(ns, request);
}

void KvCommands::prepare(Request& request, PageOp::Kind kind) {
  PageOp& op = request.page_op;
  op.kind = kind;
  op.condition = PageOp::Condition::always;
  op.durability = IoCommands::durability_of(request, false);
  op.pinned = false;
  op.key = key_of(request.command);
  op.group = 0;
  op.ttl_s = 0;
  op.data = nullptr;
  op.length = 0;
  op.capacity = 0;
  op.buffer_index = -1;
  op.keys = nullptr;
  op.keys_max = 0;
  op.keys_count = 0;
  op.status = Status();
  op.on_result = &no_result_yet;
  op.on_released = &KvCommands::released;
  op.context = &request;
}

void KvCommands::submit(Request& request) {
  io_.session().submit(*IoCommands::namespace_of(request).shared->store, request.page_op);
}

void KvCommands::store(LocalNamespace& ns, Request& request) {
  prepare(request, PageOp::Kind::put);
  PageOp& op = request.page_op;
  if (!op.key.valid()) return io_.complete(request, sc::kInvalidKeySize);
  const std::uint8_t options = options_of(request.command);
  const bool if_exists = (options & nvme::kv::kStoreIfExists) != 0;
  const bool if_absent = (options & nvme::kv::kStoreIfAbsent) != 0;
  if ((options & ~nvme::kv::kStoreOptions) != 0 || (if_exists && if_absent)) {
    return io_.complete(request, sc::kInvalidField);
  }
  const std::uint32_t length = request.command.cdw10;
  if (length == 0 || length > ns.shared->value_bytes_max) {
    return io_.complete(request, sc::kInvalidValueSize);
  }
  // Clients in the field round the buffer up to what their driver likes; shorter cannot be.
  if (request.data_bytes < length) return io_.complete(request, sc::kDataSglLengthInvalid);
  op.condition = if_exists   ? PageOp::Condition::if_exists
                 : if_absent ? PageOp::Condition::if_absent
                             : PageOp::Condition::always;
  op.length = length;
  io_.with_buffer(request, std::max(round_up(length, ns.shared->lba_bytes), request.data_bytes));
}

void KvCommands::retrieve(LocalNamespace& ns, Request& request) {
  prepare(request, PageOp::Kind::get);
  if (!request.page_op.key.valid()) return io_.complete(request, sc::kInvalidKeySize);
  if ((options_of(request.command) & ~nvme::kv::kRetrieveRaw) != 0) {
    return io_.complete(request, sc::kInvalidField);
  }
  const std::uint32_t host_bytes = request.command.cdw10;
  if (request.data_bytes < host_bytes) return io_.complete(request, sc::kDataSglLengthInvalid);
  const std::uint32_t wanted = std::clamp(host_bytes, 1u, ns.shared->value_bytes_max);
  io_.with_buffer(request, round_up(wanted, ns.shared->lba_bytes));
}

void KvCommands::remove(LocalNamespace&, Request& request) {
  prepare(request, PageOp::Kind::remove);
  if (!request.page_op.key.valid()) return io_.complete(request, sc::kInvalidKeySize);
  if (options_of(request.command) != 0) return io_.complete(request, sc::kInvalidField);
  submit(request);
}

void KvCommands::exist(LocalNamespace&, Request& request) {
  prepare(request, PageOp::Kind::exist);
  if (!request.page_op.key.valid()) return io_.complete(request, sc::kInvalidKeySize);
  if (options_of(request.command) != 0) return io_.complete(request, sc::kInvalidField);
  submit(request);
}

void KvCommands::flush(LocalNamespace&, Request& request) {
  prepare(request, PageOp::Kind::flush);
  request.page_op.key = Key{};
  submit(request);
}

void KvCommands::list(LocalNamespace&, Request& request) {
  prepare(request, PageOp::Kind::list);
  const nvme::Sqe& command = request.command;
  if ((command.cdw11 & 0xff) > Key::kBytesMax) return io_.complete(request, sc::kInvalidKeySize);
  if (options_of(command) != 0) return io_.complete(request, sc::kInvalidField);
  if (command.cdw10 < KvListBuilder::kPayloadBytesMin)
    return io_.complete(request, sc::kInvalidField);
  if (request.data_bytes < command.cdw10) return io_.complete(request, sc::kDataSglLengthInvalid);
  io_.with_buffer(request, KvListBuilder::buffer_bytes(command.cdw10));
}

void KvCommands::start(Request& request) {
  PageOp& op = request.page_op;
  op.data = request.buffer;
  op.capacity = request.buffer_bytes;
  op.buffer_index = request.buffer_index;
  switch (op.kind) {
    case PageOp::Kind::put:
      return io_.pull(request, &KvCommands::store_pulled);
    case PageOp::Kind::get:
      return submit(request);
    default:
      return start_list(request);
  }
}

void KvCommands::store_pulled(Request& request) {
  Queue::of(request).reactor->io().kv().submit(request);
}

void KvCommands::released(PageOp& op) {
  Request& request = *static_cast<Request*>(op.context);
  KvCommands& self = Queue::of(request).reactor->io().kv();
  switch (request.command.opc) {
    case nvme::kv::kRetrieve:
      return self.finish_retrieve(request);
    case nvme::kv::kList:
      return self.finish_list(request);
    default:
      return self.finish_operation(request);
  }
}

void KvCommands::finish_operation(Request& request) {
  const PageOp& op = request.page_op;
  const LocalNamespace& ns = IoCommands::namespace_of(request);
  std::uint16_t status = status_of(op);
  if (op.kind == PageOp::Kind::remove && status == sc::kKeyNotFound &&
      !ns.shared->delete_missing_is_error->load(std::memory_order_relaxed)) {
    status = sc::kSuccess;
  }
  if (op.kind == PageOp::Kind::put && status == sc::kSuccess) {
    io_.reactor().counters().host_writes.add();
    io_.reactor().counters().bytes_written.add(op.length);
  }
  io_.complete(request, status);
}

void KvCommands::finish_retrieve(Request& request) {
  const PageOp& op = request.page_op;
  const std::uint16_t status = status_of(op);
  if (status != sc::kSuccess) return io_.complete(request, status);
  const std::uint32_t bytes = std::min({op.length, request.command.cdw10, op.capacity});
  io_.reactor().counters().host_reads.add();
  io_.reactor().counters().bytes_read.add(bytes);
  request.completion.dw0 = op.length;
  if (bytes == 0) return io_.complete(request, sc::kSuccess);
  io_.push(request, bytes);
}

void KvCommands::start_list(Request& request) {
  KvListBuilder::begin(request.buffer, request.command.cdw10);
  PageOp& op = request.page_op;
  op.data = nullptr;
  // The engine lists what comes after a key; NVMe's List starts with the key itself.
  op.kind = op.key.length == 0 ? PageOp::Kind::list : PageOp::Kind::exist;
  KvListBuilder(request).lend_keys(op);
  submit(request);
}

void KvCommands::finish_list(Request& request) {
  PageOp& op = request.page_op;
  const std::uint16_t status = status_of(op);
  const bool start_is_absent = op.kind == PageOp::Kind::exist && status == sc::kKeyNotFound;
  if (status != sc::kSuccess && !start_is_absent) return io_.complete(request, status);
  KvListBuilder builder(request);
  if (op.kind == PageOp::Kind::exist) {
    op.kind = PageOp::Kind::list;
    if (start_is_absent || builder.add(op.key)) {
      builder.lend_keys(op);
      return submit(request);
    }
  } else if (builder.add_all(op)) {
    op.key = op.keys[op.keys_count - 1];
    builder.lend_keys(op);
    return submit(request);
  }
  io_.push(request, builder.finish());
}

}  // namespace furrow::transport
