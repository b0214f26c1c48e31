// SyncInitiator: an Initiator with its own background thread and blocking calls, for programs that
// have no event loop. The calls are those of SyncPageStore (engine/embedded_pool.h), so a program
// can move between a pool of its own and a server's.
//
//   furrow::transport::InitiatorOptions options;
//   options.host = "10.0.0.7";
//   auto pages = furrow::transport::SyncInitiator::connect(options);
//   furrow::Status stored = (*pages)->put(furrow::Key::from("k"), value);
//
// Threads: every call may come from any thread; each blocks its caller only. All share the
// initiator's queues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/page_calls.h"
#include "transport/initiator.h"

namespace furrow::transport {

class SyncInitiator final : public PageCalls {
 public:
  using PageCalls::run;
  // `spin_us`: how long its thread polls without work before it sleeps; ~0: for ever. Errors: those
  // of Initiator::connect.
  static Result<std::unique_ptr<SyncInitiator>> connect(const InitiatorOptions& options,
                                                        std::uint64_t spin_us = 50);
  ~SyncInitiator() override;  // no call is in progress

  // Errors of these and of PageCalls: those of Initiator::submit. TTL, groups and pinning are
  // `unsupported`; remove() of a key that is not there is ok.
  Result<std::vector<std::byte>> get(const Key& key);
  void run(std::span<PageOp> ops) override;

  std::uint32_t value_bytes_max() const;  // as Initiator's

 private:
  SyncInitiator() = default;
  struct Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace furrow::transport
