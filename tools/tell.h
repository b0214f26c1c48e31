// tell(): what a tool has to say to whoever runs it, on standard error, from any thread. When
// nobody can be told (the reader of a pipe has ended, a log's disk is full), it is lost: no server
// ends for that, and no tool with another status. Texts among the arguments are made safe to show.
// It takes the place of the line that a Progress (progress.h) has on the terminal.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "tools/safe_text.h"

namespace furrow::tools {

// While it lives there is no line of a Progress on the terminal: for who writes to it.
class WithoutProgress {
 public:
  WithoutProgress();
  ~WithoutProgress();
  WithoutProgress(const WithoutProgress&) = delete;
  WithoutProgress& operator=(const WithoutProgress&) = delete;
};

template <class... Args>
void tell(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text =
      fmt::format(fmt::runtime(fmt::string_view(format)), safe_argument(args)...);
  const WithoutProgress alone;
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace furrow::tools
