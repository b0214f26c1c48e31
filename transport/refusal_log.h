// RefusalLogger: tells people of connections that were refused or could not be accepted. Whoever
// floods a target shall not flood its log: a line for the first of each reason, and one a second
// later with the number of what followed.
//
// Threads: its executor's; made and destroyed there, or when that does not run.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "transport/connection_budget.h"
#include "zone/executor.h"

namespace furrow::transport {

// One line for people.
using RefusalLog = std::function<void(const std::string&)>;

class RefusalLogger {
 public:
  RefusalLogger(Executor& executor, RefusalLog log);  // `log` may be null
  ~RefusalLogger();
  RefusalLogger(const RefusalLogger&) = delete;
  RefusalLogger& operator=(const RefusalLogger&) = delete;

  void refused(ConnectionBudget::Verdict verdict, const std::string& peer);
  void cannot_accept(int error);  // an errno
  void tell_rest();               // now: the target stops

 private:
  struct Reason : Timer {
    RefusalLogger* self = nullptr;
    const char* why = "";
    bool running = false;
    std::uint64_t more = 0;  // since the last line
  };
  void tell(Reason& reason, const std::string& what, const char* why);
  void tell_rest(Reason& reason);

  Executor& executor_;
  const RefusalLog log_;
  std::array<Reason, ConnectionBudget::kVerdicts> reasons_;  // the first: accept failed
};

}  // namespace furrow::transport
