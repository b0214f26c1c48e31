#include "bench/backend.h"

namespace furrow::bench {

namespace {

class LocalBackend final : public Backend {
 public:
  LocalBackend(std::unique_ptr<PageSession> session, PageStore& store, const Pool* counted)
      : session_(std::move(session)), store_(store), counted_(counted) {}
  void submit(PageOp& op) override { session_->submit(store_, op); }
  Status register_buffer(std::span<std::byte> buffer) override {
    const iovec piece{buffer.data(), buffer.size()};
    return session_->register_buffers({&piece, 1});
  }
  std::uint64_t system_calls() const override {
    return session_->system_calls() + (counted_ == nullptr ? 0 : counted_->info().system_calls);
  }
  std::uint64_t reconnects() const override { return 0; }

 private:
  std::unique_ptr<PageSession> session_;
  PageStore& store_;
  const Pool* const counted_;  // what the pool itself does counts here; null: with another backend
};

class RemoteBackend final : public Backend {
 public:
  explicit RemoteBackend(std::unique_ptr<transport::Initiator> initiator)
      : initiator_(std::move(initiator)) {}
  void submit(PageOp& op) override { initiator_->submit(op); }
  Status register_buffer(std::span<std::byte>) override {
    return {Code::unsupported, Origin::tool, "the initiator lands data where it is told anyway"};
  }
  std::uint64_t system_calls() const override { return initiator_->system_calls(); }
  std::uint64_t reconnects() const override { return initiator_->reconnects(); }

 private:
  std::unique_ptr<transport::Initiator> initiator_;
};

}  // namespace

Result<std::unique_ptr<Backend>> local_backend(Pool& pool, PageStore& store, Executor& executor,
                                               unsigned depth, bool is_home) {
  auto session = pool.create_session(executor, depth);
  if (!session) return session.status();
  return std::unique_ptr<Backend>(
      std::make_unique<LocalBackend>(std::move(*session), store, is_home ? &pool : nullptr));
}

Result<std::unique_ptr<Backend>> remote_backend(Executor& executor,
                                                const transport::InitiatorOptions& options) {
  auto initiator = transport::Initiator::connect(executor, options);
  if (!initiator) return initiator.status();
  return std::unique_ptr<Backend>(std::make_unique<RemoteBackend>(std::move(*initiator)));
}

}  // namespace furrow::bench
