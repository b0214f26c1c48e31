// A child process of a crash test. It dies with its parent.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace furrow::crash {

struct Ended {
  bool killed = false;  // by a signal, `code`; else it ended itself with that exit status
  int code = 0;
  std::string describe() const;
};

class Process {
 public:
  struct Options {
    std::string output;                                // a file for stdout and stderr; emptied
    std::uint64_t file_bytes_max = ~std::uint64_t{0};  // writes behind it fail: a full disk
  };
  Process() = default;
  Process(const std::vector<std::string>& command, const Options& options);
  ~Process() { (void)end(); }
  Process(Process&& other) noexcept { *this = std::move(other); }
  Process& operator=(Process&& other) noexcept;

  bool started() const { return pid_ > 0; }
  bool running();
  void signal(int number) const;
  // Waits; a child that has not ended after `limit_s` is killed, and is then said to have been.
  Ended wait(unsigned limit_s);
  Ended end();  // kills and waits

 private:
  bool reap(bool block);
  pid_t pid_ = -1;
  bool reaped_ = false;
  Ended ended_;
};

std::string text_of(const std::string& path);  // of a file; empty: there is none

}  // namespace furrow::crash
