// furrowctl kv put|get|delete|exist|list: one operation on a KV namespace over NVMe/TCP.

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/command_line.h"
#include "tools/ctl_command.h"
#include "tools/device_flags.h"
#include "tools/progress.h"
#include "transport/initiator.h"
#include "zone/aligned_buffer.h"
#include "zone/event_loop.h"

DEFINE_string(target, "127.0.0.1:4420", "the server's HOST:PORT");
DEFINE_string(nqn, "", "subsystem NQN; empty: the only one that discovery finds");
DEFINE_string(hostnqn, "", "this host's NQN; empty: a random one");
DEFINE_string(key, "", "the key: text, or 0x and hexadecimal digits; 1 to 16 bytes");
DEFINE_string(file, "-", "where the value comes from or goes to; -: stdin or stdout");
DEFINE_bool(if_absent, false, "put only when the key is not there");
DEFINE_bool(if_exists, false, "put only when the key is there");
DEFINE_string(after, "", "list behind this key (in the namespace's listing order)");
DEFINE_uint64(limit, 0, "list this many keys at most; 0: all");
DEFINE_bool(header_digest, false, "checksum the wire's headers");
DEFINE_bool(data_digest, false, "checksum the wire's data");

namespace furrow::tools {

namespace {

using Json = nlohmann::ordered_json;

int take_nqn(const char* flag, const std::string& nqn) {
  const Status status = nqn.empty() ? Status() : check_nqn(nqn);
  return status.ok() ? kExitDone : report_usage(fmt::format("--{}: {}", flag, status.describe()));
}

// One connection to the server, used by one operation after another.
class Remote {
 public:
  // An exit status; what is wrong is reported.
  int connect() {
    const Result<Endpoint> endpoint = parse_endpoint(FLAGS_target);
    if (!endpoint) return report_usage("--target: " + endpoint.status().describe());
    const Result<std::uint32_t> nsid = client_nsid_from_flags();
    if (!nsid) return report_usage("--nsid: " + nsid.status().describe());
    if (const int status = take_nqn("nqn", FLAGS_nqn); status != kExitDone) return status;
    if (const int status = take_nqn("hostnqn", FLAGS_hostnqn); status != kExitDone) return status;
    transport::InitiatorOptions options;
    options.host = endpoint->host;
    options.port = endpoint->port;
    options.subsystem_nqn = FLAGS_nqn;
    options.host_nqn = FLAGS_hostnqn;
    options.nsid = *nsid;
    options.header_digest = FLAGS_header_digest;
    options.data_digest = FLAGS_data_digest;
    options.reconnect_for_ms = 0;
    auto connected = transport::Initiator::connect(loop_, options);
    if (!connected) return report("cannot connect to " + FLAGS_target, connected.status());
    initiator_ = std::move(*connected);
    return kExitDone;
  }

  Status run(PageOp& op) {
    op.context = &loop_;
    op.on_result = [](PageOp&) {};
    op.on_released = [](PageOp& done) { static_cast<EventLoop*>(done.context)->stop_running(); };
    initiator_->submit(op);
    loop_.run();
    return op.status;
  }

  std::uint32_t value_bytes_max() const { return initiator_->value_bytes_max(); }

 private:
  EventLoop loop_;
  std::unique_ptr<transport::Initiator> initiator_;
};

// --key, which these commands need.
int take_key(Key& key) {
  if (FLAGS_key.empty()) return report_usage("--key=KEY is needed; a key has 1 to 16 bytes");
  const Result<Key> parsed = parse_key(FLAGS_key);
  if (!parsed) return report_usage("--key: " + parsed.status().describe());
  key = *parsed;
  return kExitDone;
}

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdin && file != stdout) std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

File open_file(const char* mode, std::FILE* standard) {
  return File(FLAGS_file == "-" ? standard : std::fopen(FLAGS_file.c_str(), mode));
}

Status file_error() { return {Code::io_error, Origin::tool, "", errno}; }

int put(const Arguments&) {
  PageOp op;
  op.kind = PageOp::Kind::put;
  if (FLAGS_if_absent && FLAGS_if_exists) {
    return report_usage("--if_absent and --if_exists exclude each other");
  }
  if (FLAGS_if_absent) op.condition = PageOp::Condition::if_absent;
  if (FLAGS_if_exists) op.condition = PageOp::Condition::if_exists;
  if (const int status = take_key(op.key); status != kExitDone) return status;
  const File file = open_file("rb", stdin);
  if (!file) return report("cannot open " + FLAGS_file, file_error());
  Remote remote;
  if (const int status = remote.connect(); status != kExitDone) return status;

  // One byte more than may be, to see that there are more.
  const std::uint32_t limit = remote.value_bytes_max();
  AlignedBuffer value(std::size_t{limit} + 1);
  const std::size_t length = std::fread(value.data(), 1, value.size(), file.get());
  if (std::ferror(file.get()) != 0) return report("cannot read " + FLAGS_file, file_error());
  if (length == 0 || length > limit) {
    const std::string what = fmt::format("the value must have 1 to {} bytes", limit);
    (void)report(what, Status(length == 0 ? Code::invalid_argument : Code::too_large, Origin::tool,
                              "nothing was stored"));
    return kExitFailed;  // the command line was right, what it was fed was not
  }
  op.data = value.data();
  op.length = static_cast<std::uint32_t>(length);
  op.capacity = static_cast<std::uint32_t>(value.size());
  const Status stored = remote.run(op);
  if (!stored.ok()) return report("cannot put " + FLAGS_key, stored);
  return json_asked() ? print({{"key", format_key(op.key)}, {"bytes", length}}) : kExitDone;
}

int get(const Arguments&) {
  PageOp op;
  if (const int status = take_key(op.key); status != kExitDone) return status;
  if (json_asked() && FLAGS_file == "-") {
    return report_usage("--json and the value cannot both go to stdout; use --file");
  }
  Remote remote;
  if (const int status = remote.connect(); status != kExitDone) return status;
  AlignedBuffer value(remote.value_bytes_max());
  op.data = value.data();
  op.capacity = static_cast<std::uint32_t>(value.size());
  const Status got = remote.run(op);
  if (!got.ok()) return report("cannot get " + FLAGS_key, got);
  if (op.length > op.capacity) {
    return report("cannot get " + FLAGS_key,
                  Status(Code::protocol, Origin::tool, "the value is longer than the limit"));
  }
  // Opened only now: a get that fails leaves the file as it was.
  File file = open_file("wb", stdout);
  if (!file) return report("cannot open " + FLAGS_file, file_error());
  const bool written = std::fwrite(value.data(), 1, op.length, file.get()) == op.length;
  if (!written || std::fflush(file.get()) != 0) {
    return report("cannot write " + FLAGS_file, file_error());
  }
  return json_asked() ? print({{"key", format_key(op.key)}, {"bytes", op.length}}) : kExitDone;
}

int remove(const Arguments&) {
  PageOp op;
  if (const int status = take_key(op.key); status != kExitDone) return status;
  Remote remote;
  if (const int status = remote.connect(); status != kExitDone) return status;
  // Delete alone does not tell: over the wire, that the key is not there is success.
  op.kind = PageOp::Kind::exist;
  Status removed = remote.run(op);
  op.kind = PageOp::Kind::remove;
  if (removed.ok()) removed = remote.run(op);
  if (!removed.ok()) return report("cannot delete " + FLAGS_key, removed);
  return json_asked() ? print({{"deleted", format_key(op.key)}}) : kExitDone;
}

int exist(const Arguments&) {
  PageOp op;
  op.kind = PageOp::Kind::exist;
  if (const int status = take_key(op.key); status != kExitDone) return status;
  Remote remote;
  if (const int status = remote.connect(); status != kExitDone) return status;
  const Status found = remote.run(op);
  if (!found.ok() && found.code() != Code::not_found) {
    return report("cannot look up " + FLAGS_key, found);
  }
  const int printed = json_asked() ? print({{"key", format_key(op.key)}, {"exists", found.ok()}})
                                   : print(found.ok() ? Json("exists") : Json("does not exist"));
  if (printed != kExitDone) return printed;
  return found.ok() ? kExitDone : kExitFailed;
}

int list(const Arguments&) {
  constexpr std::uint32_t kKeysAtOnce = 1024;
  std::vector<Key> keys(kKeysAtOnce);
  PageOp op;
  op.kind = PageOp::Kind::list;
  if (!FLAGS_after.empty()) {
    const Result<Key> after = parse_key(FLAGS_after);
    if (!after) return report_usage("--after: " + after.status().describe());
    op.key = *after;
  }
  Remote remote;
  if (const int status = remote.connect(); status != kExitDone) return status;
  Json all = Json::array();
  {
    Progress progress("listing", "keys");
    const std::uint64_t limit = FLAGS_limit == 0 ? ~std::uint64_t{0} : FLAGS_limit;
    do {
      op.keys = keys.data();
      op.keys_max =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(kKeysAtOnce, limit - all.size()));
      const Status listed = remote.run(op);
      if (!listed.ok()) return report("cannot list", listed);
      for (std::uint32_t i = 0; i < op.keys_count; ++i) all.push_back(format_key(keys[i]));
      if (op.keys_count != 0) op.key = keys[op.keys_count - 1];
      progress.count(all.size());
    } while (op.keys_count != 0 && all.size() < limit);
  }
  return print(all);
}

constexpr const char* kPutFlags[] = {"key", "file",    "if_absent", "if_exists",     "target",
                                     "nqn", "hostnqn", kClientNsid, "header_digest", "data_digest"};
constexpr const char* kGetFlags[] = {"key",     "file",      "target",        "nqn",
                                     "hostnqn", kClientNsid, "header_digest", "data_digest"};
constexpr const char* kKeyFlags[] = {"key",       "target",        "nqn",        "hostnqn",
                                     kClientNsid, "header_digest", "data_digest"};
constexpr const char* kListFlags[] = {"after",   "limit",     "target",        "nqn",
                                      "hostnqn", kClientNsid, "header_digest", "data_digest"};

}  // namespace

std::span<const Command> kv_commands() {
  static constexpr Command kCommands[] = {
      {"kv put", "--key=KEY", 0, "store a value from a file or a pipe", kPutFlags, put},
      {"kv get", "--key=KEY", 0, "fetch a value into a file or a pipe", kGetFlags, get},
      {"kv delete", "--key=KEY", 0, "delete a key and its value", kKeyFlags, remove},
      {"kv exist", "--key=KEY", 0, "say whether a key is there (exit status 0 or 1)", kKeyFlags,
       exist},
      {"kv list", "", 0, "print the keys", kListFlags, list},
  };
  return kCommands;
}

}  // namespace furrow::tools
