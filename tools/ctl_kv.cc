// furrowctl kv put|get|delete|exist|list: one operation on a KV namespace over NVMe/TCP.

#include <fmt/format.h>
#include <gflags/gflags.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "tools/command_line.h"
#include "tools/ctl_command.h"
#include "tools/device_flags.h"
#include "tools/host_file.h"
#include "tools/progress.h"
#include "transport/sync_initiator.h"

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

using Remote = std::unique_ptr<transport::SyncInitiator>;

// An exit status; what is wrong is reported.
int connect(Remote& remote) {
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
  auto connected = transport::SyncInitiator::connect(options);
  if (!connected) return report("cannot connect to " + FLAGS_target, connected.status());
  remote = std::move(*connected);
  return kExitDone;
}

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
    if (file != stdin) std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

File open_input() { return File(FLAGS_file == "-" ? stdin : std::fopen(FLAGS_file.c_str(), "rb")); }

Status write_output(std::span<const std::byte> value) {
  if (FLAGS_file != "-") return replace_file(FLAGS_file, value);
  const bool written = std::fwrite(value.data(), 1, value.size(), stdout) == value.size();
  return written && std::fflush(stdout) == 0 ? Status() : file_error();
}

int put(const Arguments&) {
  PutOptions options;
  if (FLAGS_if_absent && FLAGS_if_exists) {
    return report_usage("--if_absent and --if_exists exclude each other");
  }
  if (FLAGS_if_absent) options.condition = PageOp::Condition::if_absent;
  if (FLAGS_if_exists) options.condition = PageOp::Condition::if_exists;
  Key key;
  if (const int status = take_key(key); status != kExitDone) return status;
  const File file = open_input();
  if (!file) return report("cannot open " + FLAGS_file, file_error());
  Remote remote;
  if (const int status = connect(remote); status != kExitDone) return status;

  // One byte more than may be, to see that there are more.
  const std::uint32_t limit = remote->value_bytes_max();
  std::vector<std::byte> value(std::size_t{limit} + 1);
  value.resize(std::fread(value.data(), 1, value.size(), file.get()));
  if (std::ferror(file.get()) != 0) return report("cannot read " + FLAGS_file, file_error());
  if (value.empty() || value.size() > limit) {
    const std::string what = fmt::format("the value must have 1 to {} bytes", limit);
    (void)report(what, Status(value.empty() ? Code::invalid_argument : Code::too_large,
                              Origin::tool, "nothing was stored"));
    return kExitFailed;  // the command line was right, what it was fed was not
  }
  const Status stored = remote->put(key, value, options);
  if (!stored.ok()) return report("cannot put " + FLAGS_key, stored);
  return json_asked() ? print({{"key", format_key(key)}, {"bytes", value.size()}}) : kExitDone;
}

int get(const Arguments&) {
  Key key;
  if (const int status = take_key(key); status != kExitDone) return status;
  if (json_asked() && FLAGS_file == "-") {
    return report_usage("--json and the value cannot both go to stdout; use --file");
  }
  Remote remote;
  if (const int status = connect(remote); status != kExitDone) return status;
  const auto value = remote->get(key);
  if (!value) return report("cannot get " + FLAGS_key, value.status());
  if (const Status written = write_output(*value); !written.ok()) {
    return report("cannot write " + FLAGS_file, written);
  }
  return json_asked() ? print({{"key", format_key(key)}, {"bytes", value->size()}}) : kExitDone;
}

int remove_key(const Arguments&) {
  Key key;
  if (const int status = take_key(key); status != kExitDone) return status;
  Remote remote;
  if (const int status = connect(remote); status != kExitDone) return status;
  // Delete alone does not tell: over the wire, that the key is not there is success.
  Status removed = remote->exist(key);
  if (removed.ok()) removed = remote->remove(key);
  if (!removed.ok()) return report("cannot delete " + FLAGS_key, removed);
  return json_asked() ? print({{"deleted", format_key(key)}}) : kExitDone;
}

int exist(const Arguments&) {
  Key key;
  if (const int status = take_key(key); status != kExitDone) return status;
  Remote remote;
  if (const int status = connect(remote); status != kExitDone) return status;
  const Status found = remote->exist(key);
  if (!found.ok() && found.code() != Code::not_found) {
    return report("cannot look up " + FLAGS_key, found);
  }
  const int printed = json_asked() ? print({{"key", format_key(key)}, {"exists", found.ok()}})
                                   : print(found.ok() ? Json("exists") : Json("does not exist"));
  if (printed != kExitDone) return printed;
  return found.ok() ? kExitDone : kExitFailed;
}

// Keys on stdout as they come: one a line, or the elements of a JSON array.
class KeyPrinter {
 public:
  void add(const Key& key) {
    const std::string text = format_key(key);
    put(json_asked() ? (count_ == 0 ? "[\n  " : ",\n  ") + Json(text).dump() : text + '\n');
    ++count_;
  }
  void end() const {
    if (json_asked()) put(count_ == 0 ? "[]\n" : "\n]\n");
  }
  std::uint64_t count() const { return count_; }

 private:
  // An error stays with the stream, for flush_stdout().
  static void put(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

  std::uint64_t count_ = 0;
};

// What was printed is out, or an exit status.
int flush_stdout() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return kExitDone;
  return report("cannot write to stdout", file_error());
}

int list_keys(const Arguments&) {
  constexpr std::uint64_t kKeysAtOnce = 1024;
  Key after;
  if (!FLAGS_after.empty()) {
    const Result<Key> parsed = parse_key(FLAGS_after);
    if (!parsed) return report_usage("--after: " + parsed.status().describe());
    after = *parsed;
  }
  Remote remote;
  if (const int status = connect(remote); status != kExitDone) return status;
  std::optional<Progress> progress;
  if (isatty(STDOUT_FILENO) == 0) progress.emplace("listing", "keys");  // else the keys show it
  KeyPrinter printer;
  const std::uint64_t limit = FLAGS_limit == 0 ? ~std::uint64_t{0} : FLAGS_limit;
  for (bool more = true; more && printer.count() < limit;) {
    const std::uint64_t wanted = std::min(kKeysAtOnce, limit - printer.count());
    const auto keys = remote->list(after, static_cast<std::uint32_t>(wanted));
    if (!keys) return report("cannot list", keys.status());
    for (const Key& key : *keys) printer.add(key);
    if (const int status = flush_stdout(); status != kExitDone) return status;
    more = !keys->empty();
    if (more) after = keys->back();
    if (progress) progress->count(printer.count());
  }
  printer.end();
  return flush_stdout();
}

constexpr const char* kPutFlags[] = {"key", "file",    "if_absent", "if_exists",     "target",
                                     "nqn", "hostnqn", kClientNsid, "header_digest", "data_digest"};
constexpr const char* kGetFlags[] = {"key",     "file",      "target",        "nqn",
                                     "hostnqn", kClientNsid, "header_digest", "data_digest"};
constexpr const char* kKeyFlags[] = {"key",       "target",        "nqn",        "hostnqn",
                                     kClientNsid, "header_digest", "data_digest"};
constexpr const char* kKeyListFlags[] = {"after",   "limit",     "target",        "nqn",
                                         "hostnqn", kClientNsid, "header_digest", "data_digest"};

}  // namespace

std::span<const Command> kv_commands() {
  static constexpr Command kCommands[] = {
      {"kv put", "--key=KEY", 0, "store a value from a file or a pipe", kPutFlags, put},
      {"kv get", "--key=KEY", 0, "fetch a value into a file or a pipe", kGetFlags, get},
      {"kv delete", "--key=KEY", 0, "delete a key and its value", kKeyFlags, remove_key},
      {"kv exist", "--key=KEY", 0, "say whether a key is there (exit status 0 or 1)", kKeyFlags,
       exist},
      {"kv list", "", 0, "print the keys", kKeyListFlags, list_keys},
  };
  return kCommands;
}

}  // namespace furrow::tools
