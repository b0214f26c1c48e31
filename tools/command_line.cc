#include "tools/command_line.h"

#include <fmt/format.h>
#include <gflags/gflags.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "tools/tell.h"
#include "zone/descriptors.h"

DECLARE_bool(help);
DECLARE_bool(version);
DEFINE_bool(h, false, "as --help");

namespace GFLAGS_NAMESPACE {
// gflags calls this instead of exit() when a flag is wrong; its header does not declare it.
extern void (*gflags_exitfunc)(int);
}  // namespace GFLAGS_NAMESPACE

namespace furrow::tools {

namespace {

std::string flag_line(const gflags::CommandLineFlagInfo& flag) {
  const char* value = flag.type == "bool" ? "" : flag.type == "string" ? "=TEXT" : "=N";
  const std::string name = fmt::format("--{}{}", flag.name, value);
  const std::string standard = flag.default_value.empty() || flag.default_value == "false"
                                   ? ""
                                   : fmt::format(" (default {})", flag.default_value);
  return fmt::format("  {:<26} {}{}\n", name, flag.description, standard);
}

// For any command: gflags' own, but for those that print all its flags (--helpfull and others),
// which nobody does here.
bool is_common(std::string_view flag) {
  constexpr std::string_view kCommon[] = {"help",    "h",          "version", "flagfile",
                                          "fromenv", "tryfromenv", "undefok"};
  return std::ranges::find(kCommon, flag) != std::end(kCommon);
}

std::string& running_command() {
  static std::string name;
  return name;
}

std::string_view base_name(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);  // npos + 1 is 0
}

int& end_status() {
  static int status = kExitFailed;
  return status;
}

[[noreturn]] void end_saying(const char* why) {
  // By one call: several threads may find no memory at once.
  const auto piece = [](const char* text) {
    return iovec{const_cast<char*>(text), std::strlen(text)};
  };
  const iovec line[] = {piece(program_invocation_short_name), piece(": "), piece(why), piece("\n")};
  (void)!writev(STDERR_FILENO, line, std::size(line));
  _exit(end_status());
}

// Without memory, or a descriptor for an EventLoop, nothing can be taken apart in order. Ended at
// once, as by a kill, a program loses nothing that it has answered; who started it is told why,
// which an abort would not say.
[[noreturn]] void end_without_means() {
  try {
    if (std::current_exception() != nullptr) throw;
  } catch (const std::bad_alloc&) {
    end_saying(
        "no memory can be had: raise what limits it (ulimit -v, a container's or unit's "
        "memory)");
  } catch (const std::system_error& error) {
    end_saying(error.what());
  } catch (...) {
    std::abort();
  }
  std::abort();
}

[[noreturn]] void refuse_flag_file(const std::string& path, const std::string& why) {
  std::exit(report_usage(fmt::format("--flagfile={}: {}", path, why)));
}

// The file of `--flagfile=FILE`; nothing: another argument.
std::optional<std::string> flag_file(std::string_view argument) {
  for (const std::string_view flag : {"--flagfile=", "-flagfile="}) {
    if (argument.starts_with(flag)) return std::string(argument.substr(flag.size()));
  }
  return std::nullopt;
}

// What is wrong with a line that begins with a dash; empty: nothing that can be told here. A value
// is in its line, behind `=`: it is neither the next line nor, behind the last one, an argument.
std::string wrong_flag_line(std::string_view line) {
  const std::string_view flag = line.substr(0, line.find('='));
  if (flag.find_first_of(" \t") != flag.npos) return fmt::format("is not --FLAG=VALUE: {}", line);
  if (flag.size() != line.size()) return {};
  gflags::CommandLineFlagInfo known;
  const std::string_view name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  const bool lacks_value =
      gflags::GetCommandLineFlagInfo(std::string(name).c_str(), &known) && known.type != "bool";
  if (name.empty()) return "is no flag";
  return lacks_value ? fmt::format("has no value: --{}=VALUE", name) : std::string();
}

// Flags as they stand in a file. gflags itself would pass over those that it does not know, and
// over all that follow a line without dashes.
void read_flag_file(const std::string& path, unsigned depth, std::vector<std::string>& arguments) {
  constexpr unsigned kDepthMax = 16;
  constexpr const char* kBlanks = " \t\r";
  if (depth == kDepthMax) refuse_flag_file(path, "it is named by flag files that it names");
  std::ifstream file(path);
  std::string line;
  for (unsigned number = 1; std::getline(file, line); ++number) {
    line.erase(0, line.find_first_not_of(kBlanks));
    line.erase(line.find_last_not_of(kBlanks) + 1);  // npos + 1 is 0
    if (line.empty() || line.front() == '#') continue;
    if (line.front() != '-') {
      refuse_flag_file(path, fmt::format("line {} is no flag, which begins with --", number));
    }
    const std::string wrong = wrong_flag_line(line);
    if (!wrong.empty()) refuse_flag_file(path, fmt::format("line {} {}", number, wrong));
    if (const auto other = flag_file(line)) {
      read_flag_file(*other, depth + 1, arguments);
    } else {
      arguments.push_back(line);
    }
  }
  if (!file.eof()) refuse_flag_file(path, std::strerror(errno));
}

// The arguments with the flags of a file in the place of its --flagfile.
std::vector<std::string> with_flag_files(std::span<char* const> argv) {
  std::vector<std::string> arguments;
  for (std::size_t i = 0; i < argv.size(); ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--") {  // no flags from here on
      arguments.insert(arguments.end(), argv.begin() + static_cast<std::ptrdiff_t>(i), argv.end());
      break;
    }
    const bool behind =
        (argument == "--flagfile" || argument == "-flagfile") && i + 1 < argv.size();
    const auto path = behind ? std::optional<std::string>(argv[++i]) : flag_file(argument);
    if (path) {
      read_flag_file(*path, 0, arguments);
    } else {
      arguments.emplace_back(argument);
    }
  }
  return arguments;
}

}  // namespace

std::vector<std::string> parse_flags(int argc, char** argv) {
  fill_standard_files();
  std::set_terminate(end_without_means);
  gflags::SetArgv(argc, const_cast<const char**>(argv));  // the program's name, for messages
  std::vector<std::string> arguments = with_flag_files({argv, argv + argc});
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  int count = static_cast<int>(arguments.size());
  char** first = pointers.data();
  // gflags has said what is wrong with which flag.
  GFLAGS_NAMESPACE::gflags_exitfunc = [](int) {
    std::exit(report_usage("the command line was not understood"));
  };
  gflags::ParseCommandLineNonHelpFlags(&count, &first, true);
  return {first + std::min(count, 1), first + count};
}

bool help_asked() { return FLAGS_help || FLAGS_h; }
bool version_asked() { return FLAGS_version; }

std::string_view flag_name(std::string_view entry) { return entry.substr(0, entry.find(':')); }

std::string flags_help(std::span<const char* const> names) {
  std::string text;
  for (const std::string_view entry : names) {
    const std::string_view name = flag_name(entry);
    gflags::CommandLineFlagInfo flag;
    FURROW_CHECK(gflags::GetCommandLineFlagInfo(std::string(name).c_str(), &flag));
    if (name.size() != entry.size()) {
      flag.description = entry.substr(name.size() + 2);
      flag.default_value.clear();
    }
    text += flag_line(flag);
  }
  return text;
}

std::string flags_help_of(std::string_view source_file) {
  std::vector<gflags::CommandLineFlagInfo> flags;
  gflags::GetAllFlags(&flags);
  std::string text;
  for (const auto& flag : flags) {
    if (base_name(flag.filename) == base_name(source_file)) text += flag_line(flag);
  }
  return text;
}

bool flag_given(const char* name) {
  gflags::CommandLineFlagInfo flag;
  FURROW_CHECK(gflags::GetCommandLineFlagInfo(name, &flag));
  return !flag.is_default;
}

std::string flags_not_accepted(std::span<const char* const> accepted) {
  std::vector<gflags::CommandLineFlagInfo> flags;
  gflags::GetAllFlags(&flags);
  std::string text;
  for (const auto& flag : flags) {
    if (flag.is_default || is_common(flag.name)) continue;
    if (std::ranges::any_of(accepted,
                            [&](const char* entry) { return flag.name == flag_name(entry); }))
      continue;
    text += (text.empty() ? "--" : " --") + flag.name;
  }
  return text;
}

const std::string& program_name() {
  static const std::string name = gflags::ProgramInvocationShortName();
  return name;
}

int report(std::string_view what, const Status& status) {
  tell("{}: {}: {}\n", program_name(), what, status.describe());
  return status.code() == Code::invalid_argument ? kExitUsage : kExitFailed;
}

void set_command(std::string_view name) { running_command() = name; }
void set_end_status(int status) { end_status() = status; }

int report_usage(std::string_view text, std::string_view command) {
  if (command.empty()) command = running_command();
  tell("{0}: {1}\nTry `{0}{2}{3} --help`.\n", program_name(), text, command.empty() ? "" : " ",
       command);
  return kExitUsage;
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  const Status wrong(Code::invalid_argument, Origin::tool,
                     "give HOST:PORT with a port of 0 to 65535, as in 127.0.0.1:4420");
  const std::size_t colon = text.find_last_of(':');
  if (colon == std::string_view::npos || colon == 0) return wrong;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return wrong;  // a bare IPv6 address: where would its port begin?
  }
  Endpoint endpoint{std::string(host), 0};
  const char* end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, endpoint.port);
  if (error != std::errc() || rest != end || host.empty()) return wrong;
  return endpoint;
}

namespace {

// "8" is 8 to 8.
std::optional<std::pair<unsigned, unsigned>> parse_range(std::string_view text) {
  unsigned first = 0;
  const char* const end = text.data() + text.size();
  std::from_chars_result read = std::from_chars(text.data(), end, first);
  unsigned last = first;
  if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') {
    read = std::from_chars(read.ptr + 1, end, last);
  }
  if (read.ec != std::errc() || read.ptr != end || last < first) return std::nullopt;
  return std::pair(first, last);
}

}  // namespace

Result<std::vector<unsigned>> parse_cpus(std::string_view text) {
  constexpr std::size_t kCpusMax = 256;
  constexpr unsigned kCpuMax = 65535;  // more than any kernel has
  const Status wrong(Code::invalid_argument, Origin::tool,
                     "give 1 to 256 processors, each once, as in 0-3,8");
  std::vector<unsigned> cpus;
  for (const std::string& piece : split(text, ',')) {
    const auto range = parse_range(piece);
    if (!range || range->second > kCpuMax) return wrong;
    for (unsigned cpu = range->first; cpu <= range->second; ++cpu) {
      if (std::ranges::count(cpus, cpu) != 0) return wrong;
      cpus.push_back(cpu);
      if (cpus.size() > kCpusMax) return wrong;
    }
  }
  if (cpus.empty()) return wrong;
  return cpus;
}

Status check_nqn(std::string_view nqn) {
  constexpr std::size_t kBytesMax = 223;
  if (nqn.starts_with("nqn.") && nqn.size() <= kBytesMax) return {};
  return {Code::invalid_argument, Origin::tool,
          "an NQN starts with \"nqn.\" and has at most 223 bytes"};
}

Result<Key> parse_key(std::string_view text) {
  std::vector<std::byte> bytes;
  if (text.starts_with("0x")) {
    for (std::size_t i = 2; i < text.size(); i += 2) {
      std::uint8_t byte = 0;
      const char* end = text.data() + std::min(i + 2, text.size());
      const auto [rest, error] = std::from_chars(text.data() + i, end, byte, 16);
      if (error != std::errc() || rest != text.data() + i + 2) {
        return Status(Code::invalid_argument, Origin::tool,
                      "a key that begins with 0x goes on with pairs of hexadecimal digits");
      }
      bytes.push_back(std::byte{byte});
    }
  } else {
    const auto raw = std::as_bytes(std::span(text));
    bytes.assign(raw.begin(), raw.end());
  }
  const Key key = Key::from(std::span<const std::byte>(bytes));
  if (!key.valid()) {
    return Status(Code::invalid_argument, Origin::tool, "a key has 1 to 16 bytes");
  }
  return key;
}

std::string format_key(const Key& key) {
  std::string text;
  for (const std::byte byte : key.view()) text += static_cast<char>(byte);
  const bool printable = std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
  if (printable && !text.starts_with("0x")) return text;
  std::string hex = "0x";
  for (const std::byte byte : key.view()) hex += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return hex;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    if (end != 0) pieces.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return pieces;
}

}  // namespace furrow::tools
