#include "tools/command.h"

#include <fmt/format.h>

#include <algorithm>

namespace furrow::tools {

namespace {

constexpr const char* kCommonFlags[] = {"json"};

std::string usage_line(const Command& command) {
  return fmt::format("{} {}{}{}", program_name(), command.name,
                     *command.arguments == '\0' ? "" : " ", command.arguments);
}

bool begins_with(const Command& command, const Arguments& words) {
  const std::vector<std::string> name = split(command.name, ' ');
  return words.size() <= name.size() &&
         std::ranges::equal(words, std::span(name).first(words.size()));
}

// The commands that begin with `words`.
int help_list(std::span<const Command> commands, const Arguments& words, const char* footer) {
  fmt::print("usage: {} COMMAND [ARGUMENT...] [flags]\n\n", program_name());
  for (const Command& command : commands) {
    if (!begins_with(command, words)) continue;
    fmt::print("  {:<44} {}\n", usage_line(command), command.summary);
  }
  fmt::print("\nEvery command takes --json and --help.\n{}", footer);
  return kExitDone;
}

int help_one(const Command& command) {
  fmt::print("usage: {} [flags]\n{}\n\n{}{}", usage_line(command), command.summary,
             flags_help(command.flags), flags_help(kCommonFlags));
  return kExitDone;
}

int run_one(const Command& command, const Arguments& arguments) {
  if (help_asked()) return help_one(command);
  if (arguments.size() != command.argument_count) {
    return report_usage("usage: " + usage_line(command));
  }
  std::vector<const char*> accepted(command.flags.begin(), command.flags.end());
  accepted.insert(accepted.end(), std::begin(kCommonFlags), std::end(kCommonFlags));
  const std::string refused = flags_not_accepted(accepted);
  if (!refused.empty()) {
    return report_usage(fmt::format("`{}` does not take {}", command.name, refused));
  }
  return command.run(arguments);
}

std::string join(const Arguments& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

int run_commands(int argc, char** argv, std::span<const Command> commands, const char* footer) {
  const Arguments words = parse_flags(argc, argv);
  if (version_asked()) {
    fmt::print("{} {}\n", program_name(), FURROW_VERSION);
    return kExitDone;
  }
  for (const Command& command : commands) {
    const std::vector<std::string> name = split(command.name, ' ');
    if (words.size() < name.size() ||
        !std::ranges::equal(name, std::span(words).first(name.size())))
      continue;
    const auto first = words.begin() + static_cast<std::ptrdiff_t>(name.size());
    return run_one(command, {first, words.end()});
  }
  const bool any = std::ranges::any_of(
      commands, [&](const Command& command) { return begins_with(command, words); });
  if (help_asked() && any) return help_list(commands, words, footer);
  return report_usage(words.empty() ? "say what to do"
                                    : fmt::format("there is no command `{}`", join(words)));
}

}  // namespace furrow::tools
