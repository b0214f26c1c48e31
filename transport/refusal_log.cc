#include "transport/refusal_log.h"

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

namespace furrow::transport {

namespace {

constexpr std::uint64_t kTellEveryNs = 1'000'000'000;

// By ConnectionBudget::Verdict; the first refuses nobody.
constexpr const char* kReasons[] = {
    "", "the target has all the connections that it may have (connections_max)",
    "its address has all the connections that it may have (connections_per_address_max)",
    "too many connections have not got through Connect yet"};
static_assert(std::size(kReasons) == ConnectionBudget::kVerdicts);

const char* accept_reason(int error) {
  switch (error) {
    case EMFILE:
      return "no more open files (raise `ulimit -n`, or lower connections_max); they wait";
    case ENFILE:
      return "no more open files of the whole machine (fs.file-max); they wait";
    case ENOBUFS:
    case ENOMEM:
      return "the kernel has no memory for it; they wait";
    case EPERM:
      return "a firewall, or another rule of this machine, forbids it";
    default:
      return "others are accepted as before";
  }
}

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
  const auto number = static_cast<unsigned>(verdict);
  tell(reasons_[number], "refused a connection from " + peer, kReasons[number]);
}

void RefusalLogger::cannot_accept(int error) {
  tell(reasons_[0], std::string("cannot accept a connection (") + std::strerror(error) + ")",
       accept_reason(error));
}

void RefusalLogger::tell(Reason& reason, const std::string& what, const char* why) {
  if (!log_) return;
  reason.why = why;  // of the last one
  if (reason.running) {
    ++reason.more;
    return;
  }
  log_(what + ": " + why);
  reason.running = true;
  executor_.start(reason, kTellEveryNs);
}

void RefusalLogger::tell_rest(Reason& reason) {
  reason.running = false;
  const std::uint64_t more = std::exchange(reason.more, 0);
  if (more == 0) return;
  tell(reason,
       std::to_string(more) + (&reason == reasons_.data()
                                   ? " more times a connection could not be accepted"
                                   : " more connections were refused"),
       reason.why);
}

void RefusalLogger::tell_rest() {
  for (Reason& reason : reasons_) {
    executor_.stop(reason);
    tell_rest(reason);
  }
}

}  // namespace furrow::transport
