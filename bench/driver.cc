#include "bench/driver.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "zone/check.h"

namespace furrow::bench {

namespace {
constexpr std::size_t aligned(std::size_t bytes) {
  constexpr std::size_t kAlignment = AlignedBuffer::kAlignment;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}
std::uint64_t buffers_each(const Driver::Options& options) {
  const std::uint64_t once = options.depth * aligned(options.page_bytes);
  return std::max<std::uint64_t>(1, options.memory_bytes / once);
}
}  // namespace

std::uint64_t Driver::memory_bytes(const Options& options) {
  return buffers_each(options) * options.depth * aligned(options.page_bytes);
}

Result<std::unique_ptr<Driver>> Driver::make(EventLoop& loop, Backend& backend,
                                             const Options& options) {
  std::optional<AlignedBuffer> memory = AlignedBuffer::allocate(memory_bytes(options));
  if (!memory) {
    return Status(Code::no_space, Origin::tool,
                  "there is not so much memory: lower --depth, --page_bytes or --memory");
  }
  return std::unique_ptr<Driver>(new Driver(loop, backend, options, std::move(*memory)));
}

Driver::Driver(EventLoop& loop, Backend& backend, const Options& options, AlignedBuffer memory)
    : loop_(loop),
      backend_(backend),
      buffers_each_(buffers_each(options)),
      memory_(std::move(memory)),
      slots_(options.depth) {
  const bool registered = backend_.register_buffer(memory_.span()).ok();
  const std::size_t stride = aligned(options.page_bytes);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.driver = this;
    slot.op.data = memory_.data() + i * stride;
    slot.op.capacity = static_cast<std::uint32_t>(stride);
    slot.op.buffer_index = registered ? 0 : -1;
    slot.op.context = &slot;
    slot.op.on_result = on_result;
    slot.op.on_released = on_released;
  }
  idle_.reserve(slots_.size());
}

void Driver::start(Job& job, std::function<void()> finished) {
  job_ = &job;
  ended_ = false;
  finished_ = std::move(finished);
  idle_.clear();
  for (Slot& slot : slots_) idle_.push_back(&slot);
  start_task_.driver = this;
  start_task_.run = [](Task& task) {
    Driver& driver = *static_cast<StartTask&>(task).driver;
    driver.pump(driver.loop_.now_ns());
  };
  loop_.post(start_task_);
}

void Driver::next_buffer(Slot& slot) {
  if (buffers_each_ == 1) return;
  slot.buffer = (slot.buffer + 1) % buffers_each_;
  const auto index = static_cast<std::size_t>(&slot - slots_.data());
  slot.op.data = memory_.data() + (slot.buffer * slots_.size() + index) * slot.op.capacity;
}

void Driver::submit(Slot& slot, std::uint64_t now_ns) {
  slot.started_ns = now_ns;
  backend_.submit(slot.op);
}

void Driver::pump(std::uint64_t now_ns) {
  while (!ended_ && !idle_.empty()) {
    Slot& slot = *idle_.back();
    next_buffer(slot);
    const Job::Next next = job_->next(slot, now_ns);
    if (next == Job::Next::run) {
      idle_.pop_back();
      submit(slot, now_ns);
    } else if (next == Job::Next::end) {
      ended_ = true;
    } else {
      FURROW_CHECK(idle_.size() < slots_.size());  // else it would wait for ever
      return;
    }
  }
  if (ended_ && idle_.size() == slots_.size()) finished_();
}

void Driver::on_result(PageOp& op) {
  Slot& slot = *static_cast<Slot*>(op.context);
  slot.latency_ns = slot.driver->loop_.now_ns() - slot.started_ns;
  slot.late = op.status.code() == Code::late;
}

void Driver::on_released(PageOp& op) {
  Slot& slot = *static_cast<Slot*>(op.context);
  slot.driver->released(slot);
}

void Driver::released(Slot& slot) {
  // Of one that was late, that was a while ago.
  const std::uint64_t now_ns = slot.late ? loop_.now_ns() : slot.started_ns + slot.latency_ns;
  if (job_->done(slot)) {
    submit(slot, now_ns);
    return;
  }
  idle_.push_back(&slot);
  pump(now_ns);
}

}  // namespace furrow::bench
