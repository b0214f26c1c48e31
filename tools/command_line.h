// What every binary's command line has in common: gflags with the exit statuses that furrow
// promises, texts for flags, and parsers of endpoints and keys. For main() and its helpers;
// one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "log/key.h"
#include "zone/status.h"

namespace furrow::tools {

enum ExitStatus : int {
  kExitDone = 0,
  kExitFailed = 1,
  kExitUsage = 2,
};

// What main() does first. Sees to it that no file which is opened later becomes standard input,
// output or error, lets gflags parse the flags, those of a `--flagfile` too, and returns what is
// left behind the program's name. Does not return on a bad flag: the reason is printed and the
// process ends with kExitUsage.
std::vector<std::string> parse_flags(int argc, char** argv);
bool help_asked();     // --help or -h
bool version_asked();  // --version

// "  --size=TEXT  description" for each, in this order; a name that is no flag is our own mistake.
// "name: text" gives a flag another description, default included, where it means something else.
std::string flags_help(std::span<const char* const> names);
// The flags of a main file (its __FILE__) in alphabetical order, as above.
std::string flags_help_of(std::string_view source_file);
bool flag_given(const char* name);                   // on the command line or in a flag file
std::string_view flag_name(std::string_view entry);  // the name in such an entry
// Flags given that are neither among `accepted` nor for any command, as --flagfile is: "--size
// --name"; empty: none.
std::string flags_not_accepted(std::span<const char* const> accepted);

// "PROGRAM: what: description of the status" on stderr. Returns kExitUsage for invalid_argument,
// else kExitFailed.
int report(std::string_view what, const Status& status);
// What the program ends with where it cannot get what it cannot be without, as memory; until this
// is called, kExitFailed.
void set_end_status(int status);
// Which command of the program runs, for the next one.
void set_command(std::string_view name);
// "PROGRAM: text" and a hint at the --help of `command` (empty: of the one that runs, or the
// program's) on stderr. Returns kExitUsage.
int report_usage(std::string_view text, std::string_view command = {});
const std::string& program_name();

struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
};
// "HOST:PORT" or "[IPV6]:PORT".
Result<Endpoint> parse_endpoint(std::string_view text);

// Processors as taskset(1) has them, "0-3,8", in the order in which they stand there: 1 to 256,
// each once.
Result<std::vector<unsigned>> parse_cpus(std::string_view text);

// Does it look like an NVMe qualified name: "nqn." and 223 bytes at most? Else invalid_argument.
Status check_nqn(std::string_view nqn);

// A key as text, or as 0x and an even number of hexadecimal digits. 1 to 16 bytes.
Result<Key> parse_key(std::string_view text);
// The reverse: text when it is printable ASCII and would be read back as itself, else 0xHEX.
std::string format_key(const Key& key);

// "a,b,c" in pieces; an empty text gives none.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace furrow::tools
