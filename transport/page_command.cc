#include "transport/page_command.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "transport/nvme.h"

namespace furrow::transport {

namespace {

using Kind = PageOp::Kind;
using Direction = HostCommand::Direction;

// Of a List entry: u16 length and the longest key, padded to 4 bytes.
constexpr std::uint32_t kListEntryBytes = (2 + Key::kBytesMax + 3) & ~3u;
constexpr std::uint32_t kListHeaderBytes = 4;

Status refused(Code code, const char* hint) { return Status(code, Origin::transport, hint); }

std::uint32_t list_bytes(const PageOp& op, const PageLimits& limits) {
  // One more than wanted: List repeats the key that it starts from.
  const std::uint64_t bytes = kListHeaderBytes + (std::uint64_t{op.keys_max} + 1) * kListEntryBytes;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, limits.transfer_bytes_max));
}

std::uint8_t opcode_of(Kind kind) {
  switch (kind) {
    case Kind::get:
      return nvme::kv::kRetrieve;
    case Kind::put:
      return nvme::kv::kStore;
    case Kind::remove:
      return nvme::kv::kDelete;
    case Kind::exist:
      return nvme::kv::kExist;
    case Kind::list:
      return nvme::kv::kList;
    default:
      return nvme::kv::kFlush;
  }
}

void put_key(nvme::Sqe& sqe, const Key& key) {
  std::memcpy(&sqe.cdw2, key.bytes.data(), 8);
  std::memcpy(&sqe.cdw14, key.bytes.data() + 8, 8);
  sqe.cdw11 = key.length;
}

// Statuses that say "not done, try again", unless DNR is set (Base specification 2.0, figure
// "Generic Command Status Values"; Key Value Command Set 1.0 for the last two).
bool is_transient(std::uint16_t status) {
  return status == nvme::sc::kCommandInterrupted || status == nvme::sc::kTransientTransportError ||
         status == nvme::sc::kNamespaceNotReady || status == nvme::sc::kFormatInProgress;
}

Status status_of(const HostCommand& command) {
  const nvme::Cqe& cqe = command.cqe;
  const std::uint16_t status = cqe.sct_sc();
  const auto failed = [status](Code code, const char* hint) {
    return Status(code, Origin::transport, hint, 0, status);
  };
  switch (status) {
    case nvme::sc::kSuccess:
      return Status();
    case nvme::sc::kKeyNotFound:
      return failed(Code::not_found, "no such key");
    case nvme::sc::kKeyExists:
      return failed(Code::exists, "the key is there already");
    case nvme::sc::kCapacityExceeded:
      return failed(Code::no_space,
                    "no room: the volume is full, or the file system that its device is a file of");
    case nvme::sc::kInvalidValueSize:
      return failed(Code::invalid_argument, "the target does not take values of this size");
    case nvme::sc::kInvalidKeySize:
      return failed(Code::invalid_argument, "a key has 1 to 16 bytes");
    case nvme::sc::kUnrecovered:
      if (command.sqe.opc == nvme::kv::kFlush) {
        return failed(Code::io_error, "the device failed to make durable what was stored");
      }
      return failed(Code::corrupt,
                    "the page is damaged, or the device cannot read it; it was not served");
    case nvme::sc::kNamespaceNotReady:
    case nvme::sc::kFormatInProgress:
      return failed(Code::busy, "the volume is not ready yet");
    case nvme::sc::kReservationConflict:
      return failed(Code::in_use, "another host has reserved the namespace");
    case nvme::sc::kInvalidOpcode:
      return failed(Code::unsupported, "the target does not know the command");
    case nvme::sc::kCommandInterrupted:
    case nvme::sc::kTransientTransportError:
      if (cqe.dnr()) break;
      return failed(Code::busy, "the target could not do it now; try again");
    case nvme::sc::kInvalidNamespaceOrFormat:
      return failed(Code::not_found, "the target has no KV namespace with this NSID any longer");
    case nvme::sc::kAbortRequested:
    case nvme::sc::kAbortedSqDeletion:
      return failed(Code::aborted, "the target gave it up");
    default:
      break;
  }
  return failed(Code::io_error, "the target failed the command");
}

Status decode_list(PageOp& op, const HostCommand& command) {
  const auto* payload = static_cast<const std::byte*>(op.internal.scratch[0]);
  const std::uint32_t bytes = command.received_bytes;
  const Status malformed = refused(Code::protocol, "the target's List payload is malformed");
  op.keys_count = 0;
  std::uint32_t count = 0;
  if (bytes < kListHeaderBytes) return malformed;
  std::memcpy(&count, payload, sizeof count);
  std::uint32_t at = kListHeaderBytes;
  for (std::uint32_t i = 0; i < count && op.keys_count < op.keys_max; ++i) {
    std::uint16_t length = 0;
    if (bytes - at < sizeof length) return malformed;
    std::memcpy(&length, payload + at, sizeof length);
    if (length == 0 || length > Key::kBytesMax || bytes - at - sizeof length < length) {
      return malformed;
    }
    const Key key = Key::from(std::span(payload + at + sizeof length, length));
    if (key != op.key) op.keys[op.keys_count++] = key;
    at += std::min((static_cast<std::uint32_t>(sizeof length) + length + 3u) & ~3u, bytes - at);
  }
  return Status();
}

}  // namespace

Status check_page_op(const PageOp& op, const PageLimits& limits) {
  switch (op.kind) {
    case Kind::exist:
      if (op.whole_record) {
        return refused(Code::unsupported,
                       "the KV command set has no TTL, groups or pinning to tell");
      }
      break;
    case Kind::get:
    case Kind::remove:
      break;
    case Kind::put:
      if (op.ttl_s != 0 || op.group != 0 || op.pinned) {
        return refused(Code::unsupported,
                       "the KV command set has no TTL, groups or pinning; use them locally");
      }
      if (op.length == 0) return refused(Code::invalid_argument, "a value has at least 1 byte");
      if (op.length > limits.value_bytes_max) {
        return refused(
            Code::too_large,
            "the value is longer than the volume, or a transfer of the target (MDTS), takes");
      }
      break;
    case Kind::list:
      if (op.key.length > Key::kBytesMax) {
        return refused(Code::invalid_argument, "a key has 1 to 16 bytes");
      }
      return op.keys_max != 0 ? Status() : refused(Code::invalid_argument, "keys_max is 0");
    case Kind::flush:
      return Status();
    default:
      return refused(Code::unsupported, "the KV command set has no such operation");
  }
  return op.key.valid() ? Status() : refused(Code::invalid_argument, "a key has 1 to 16 bytes");
}

bool encode_page_op(PageOp& op, const PageLimits& limits, bool flush, HostCommand& command) {
  nvme::Sqe& sqe = command.sqe;
  sqe.nsid = limits.nsid;
  if (flush || op.kind == Kind::flush) {
    sqe.opc = nvme::kv::kFlush;
    return true;
  }
  sqe.opc = opcode_of(op.kind);
  put_key(sqe, op.key);
  if (op.kind == Kind::put) {
    if (op.condition == PageOp::Condition::if_exists) {
      sqe.cdw11 |= std::uint32_t{nvme::kv::kStoreIfExists} << 8;
    } else if (op.condition == PageOp::Condition::if_absent) {
      sqe.cdw11 |= std::uint32_t{nvme::kv::kStoreIfAbsent} << 8;
    }
    sqe.cdw10 = command.data_bytes = op.length;
    command.direction = Direction::to_target;
    command.data = op.data;
  } else if (op.kind == Kind::get) {
    sqe.cdw10 = command.data_bytes = std::min(op.capacity, limits.transfer_bytes_max);
    command.direction = Direction::from_target;
    command.data = op.data;
  } else if (op.kind == Kind::list) {
    sqe.cdw10 = command.data_bytes = list_bytes(op, limits);
    command.direction = Direction::from_target;
    free_list_memory(op);  // of an association before, which may have had shorter transfers
    command.data = new (std::nothrow) std::byte[command.data_bytes];
    op.internal.scratch[0] = command.data;
    return command.data != nullptr;
  }
  return true;
}

Status decode_page_answer(PageOp& op, const HostCommand& command) {
  const Status status = status_of(command);
  if (!status.ok()) return status;
  if (command.sqe.opc == nvme::kv::kRetrieve) {
    // What came must be what DW0 announces, as far as there was room.
    if (command.received_bytes != std::min(command.cqe.dw0, command.data_bytes)) {
      return refused(Code::protocol, "the target sent less than the value that it announced");
    }
    if (command.cqe.dw0 > command.data_bytes && command.data_bytes < op.capacity) {
      return refused(Code::protocol, "the value is longer than the target's transfers");
    }
    op.length = command.cqe.dw0;
  } else if (command.sqe.opc == nvme::kv::kList) {
    return decode_list(op, command);
  }
  return status;
}

void free_list_memory(PageOp& op) {
  if (op.kind != Kind::list) return;
  delete[] static_cast<std::byte*>(op.internal.scratch[0]);
  op.internal.scratch[0] = nullptr;
}

bool may_succeed_later(const Status& status, const nvme::Cqe& cqe) {
  return !status.ok() && !cqe.dnr() && is_transient(status.nvme());
}

bool is_idempotent(const PageOp& op) {
  switch (op.kind) {
    case Kind::get:
    case Kind::exist:
    case Kind::list:
    case Kind::remove:
      return true;
    case Kind::put:
      return op.condition == PageOp::Condition::always;
    default:
      return false;
  }
}

bool changes_pages(const PageOp& op) { return op.kind == Kind::put || op.kind == Kind::remove; }

bool needs_flush(const PageOp& op) {
  return changes_pages(op) && op.durability == Durability::flushed;
}

}  // namespace furrow::transport
