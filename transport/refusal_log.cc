#include "transport/refusal_log.h"

#include <cstring>
#include <iterator>
#include <utility>

namespace furrow::transport {

namespace {

constexpr std::uint64_t kTellEveryNs = 1'000'000'000;

// By ConnectionBudget::Verdict; the first, which refuses nobody, stands for an accept that failed.
constexpr const char* kReasons[] = {
    "no more open files (raise `ulimit -n`, or lower connections_max) or memory; they wait",
    "the target has all the connections that it may have (connections_max)",
    "its address has all the connections that it may have (connections_per_address_max)",
    "too many connections have not got through Connect yet"};
static_assert(std::size(kReasons) == ConnectionBudget::kVerdicts);

}  // namespace

RefusalLogger::RefusalLogger(Executor& executor, RefusalLog log)
    : executor_(executor), log_(std::move(log)) {
  for (Reason& reason : reasons_) {
    reason.self = this;
    reason.fire = [](Timer& timer) {
      auto& due = static_cast<Reason&>(timer);
      due.self->tell_rest(due);
    };
  }
}

RefusalLogger::~RefusalLogger() {
  for (Reason& reason : reasons_) executor_.stop(reason);
}

void RefusalLogger::refused(ConnectionBudget::Verdict verdict, const std::string& peer) {
  tell(reasons_[static_cast<unsigned>(verdict)], "refused a connection from " + peer);
}

void RefusalLogger::cannot_accept(int error) {
  tell(reasons_[0], std::string("cannot accept a connection (") + std::strerror(error) + ")");
}

void RefusalLogger::tell(Reason& reason, const std::string& what) {
  if (!log_) return;
  if (reason.running) {
    ++reason.more;
    return;
  }
  log_(what + ": " + kReasons[&reason - reasons_.data()]);
  reason.running = true;
  executor_.start(reason, kTellEveryNs);
}

void RefusalLogger::tell_rest(Reason& reason) {
  reason.running = false;
  const std::uint64_t more = std::exchange(reason.more, 0);
  if (more == 0) return;
  tell(reason, std::to_string(more) + (&reason == reasons_.data()
                                           ? " more times a connection could not be accepted"
                                           : " more connections were refused"));
}

void RefusalLogger::tell_rest() {
  for (Reason& reason : reasons_) {
    executor_.stop(reason);
    tell_rest(reason);
  }
}

}  // namespace furrow::transport
