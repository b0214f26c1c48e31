#include "transport/reactor_impl.h"

#include <new>
#include <utility>

#include "transport/command_checks.h"
#include "transport/fair_share.h"

namespace furrow::transport {

namespace {

// The entry of `key`, which is made if need be. Without memory for it the map stays as it is.
template <class Map>
std::shared_ptr<BufferPool::Held> held_of(Map& held, const typename Map::key_type& key) {
  const auto found = held.find(key);
  if (found != held.end()) return found->second;
  return held.emplace(key, std::make_shared<BufferPool::Held>()).first->second;
}

// A queue lets go of its entry, which is dropped with the last.
template <class Map>
void drop_held(Map& held, const typename Map::key_type& key,
               std::shared_ptr<BufferPool::Held>& its) {
  if (its == nullptr) return;
  its.reset();
  const auto found = held.find(key);
  if (found->second.use_count() == 1) held.erase(found);
}

}  // namespace

ReactorImpl::ReactorImpl(SubsystemImpl& subsystem, Executor& executor,
                         std::unique_ptr<PageSession> session)
    : subsystem_(subsystem),
      executor_(executor),
      mailbox_(executor),
      io_(*this, std::move(session), subsystem.options().buffer_bytes_max,
          subsystem.options().transfer_bytes_max) {
  io_.apply(*subsystem.namespaces(), 0, [] {});
  subsystem.attach(*this);
}

ReactorImpl::~ReactorImpl() {
  FURROW_CHECK(queues_.empty());
  subsystem_.detach(*this, stats());
}

bool ReactorImpl::idle() const { return queues_.empty() && io_.idle() && mailbox_.empty(); }

void ReactorImpl::on_open(Connection& connection) {
  auto queue = std::make_shared<Queue>();
  queue->reactor = this;
  queue->connection = &connection;
  const auto made = queues_.emplace(queue.get(), queue).first;
  try {
    if (const std::uint64_t address = connection.address(); address != 0) {
      queue->address_held = held_of(addresses_held_, address);
    }
  } catch (...) {
    queues_.erase(made);
    throw;
  }
  connection.controller_context = queue.get();
}

void ReactorImpl::on_request(Request& request) {
  Queue& queue = Queue::of(request);
  ++queue.in_flight;
  queue.traffic.store(queue.traffic.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  switch (queue.state) {
    case Queue::State::live: {
      if (queue.id != 0) return io_command(queue, request);
      counters_.admin_commands.add();
      const std::shared_ptr<Controller> controller = queue.controller;
      return controller->execute(request);
    }
    case Queue::State::awaiting_connect:
      return connect(request);
    case Queue::State::connecting:
      return complete(request, nvme::sc::kCommandSequenceError);
    case Queue::State::closing:
      return complete(request, nvme::sc::kAbortedSqDeletion);
  }
}

// What comes now will be sent again on another connection, and so has to be what would go with it.
void ReactorImpl::on_last_request(Connection& connection) {
  Queue& queue = *static_cast<Queue*>(connection.controller_context);
  io_.give_up_fused(queue, nvme::sc::kAbortedSqDeletion);
}

void ReactorImpl::on_close(Connection& connection) {
  const auto found = queues_.find(static_cast<Queue*>(connection.controller_context));
  FURROW_CHECK(found != queues_.end());
  const std::shared_ptr<Queue> queue = found->second;
  queue->open = false;
  queue->state = Queue::State::closing;
  ++queue->in_flight;  // keeps the queue while its requests are turned away
  io_.cancel_waiting(*queue, IoCommands::kEveryCommand, nvme::sc::kAbortedSqDeletion);
  if (queue->controller != nullptr && queue->id == 0) queue->controller->end();
  request_done(*queue);
}

void ReactorImpl::request_done(Queue& queue) {
  FURROW_CHECK(queue.in_flight > 0);
  --queue.in_flight;
  if (!queue.open && queue.in_flight == 0) drop_if_done(queue);
}

void ReactorImpl::drop_if_done(Queue& queue) {
  drop_held(addresses_held_, queue.connection->address(), queue.address_held);
  if (queue.controller != nullptr) {
    drop_held(hosts_held_, queue.controller->host().nqn, queue.host_held);
    subsystem_.queue_gone(queue);
  }
  queues_.erase(&queue);
}

// From Connect on.
void ReactorImpl::know_host(Queue& queue) {
  queue.host_held = held_of(hosts_held_, queue.controller->host().nqn);
}

void ReactorImpl::close(Queue& queue) {
  if (queue.state == Queue::State::closing) return;
  queue.state = Queue::State::closing;
  queue.connection->close();
}

bool ReactorImpl::abort_waiting(Queue& queue, std::uint16_t cid) {
  if (!queue.open) return false;
  return io_.cancel_waiting(queue, cid, nvme::sc::kAbortRequested) != 0;
}

void ReactorImpl::io_command(Queue& queue, Request& request) {
  counters_.io_commands.add();
  const bool is_fabrics = request.command.opc == nvme::opcode::kFabrics;  // whatever it says
  const bool is_second = (request.command.flags & nvme::kFuseMask) == nvme::kFuseSecond;
  if (!is_second || is_fabrics) {
    io_.give_up_fused(queue, nvme::sc::kMissingFused);
    queue.fused_first_failed = false;
  }
  if (is_fabrics) return io_fabrics(queue, request);
  io_.execute(request);
}

// Of the fabrics commands an I/O queue may only carry Disconnect (and authentication, which this
// subsystem does not ask for).
void ReactorImpl::io_fabrics(Queue& queue, Request& request) {
  if (const auto status = check_command(request.command); status != nvme::sc::kSuccess) {
    return complete(request, status);
  }
  if (request.command.fctype() == nvme::fabrics::kConnect) {
    return complete(request, nvme::sc::kCommandSequenceError);
  }
  if (request.command.fctype() != nvme::fabrics::kDisconnect) {
    return complete(request, nvme::sc::kInvalidField);
  }
  const std::shared_ptr<Queue> keep = queues_.at(&queue);
  complete(request, nvme::sc::kSuccess);
  if (keep->open) close(*keep);
}

void ReactorImpl::set_result(Request& request, std::uint16_t status) {
  request.completion.set_status(status, do_not_retry(status));
  if (status == nvme::sc::kSuccess) return;
  // A page that is not there, or already there, is an answer and no failure: a cache would do
  // nothing else than fill the log.
  if (status == nvme::sc::kKeyNotFound || status == nvme::sc::kKeyExists) return;
  counters_.commands_failed.add();
  Queue& queue = Queue::of(request);
  if (queue.controller == nullptr) return;
  if (wants_delay(status) && queue.controller->heeds_retry_delays()) {
    request.completion.status |= nvme::Cqe::kRetryDelay1;
  }
  queue.controller->errors().add(request.command, queue.id, request.completion.status);
}

void ReactorImpl::complete(Request& request, std::uint16_t status) {
  set_result(request, status);
  request.on_done = &ReactorImpl::plain_done;
  request.connection->complete(request);
}

void ReactorImpl::plain_done(Request& request) {
  Queue& queue = Queue::of(request);
  queue.reactor->request_done(queue);
}

bool ReactorImpl::take_payload(Queue& queue, std::uint64_t bytes) {
  if (!within_share(kPayload, queue.payload_bytes, bytes, kPayload.total - payload_bytes_)) {
    counters_.payloads_refused.add();
    return false;
  }
  payload_bytes_ += bytes;
  queue.payload_bytes += bytes;
  return true;
}

void ReactorImpl::give_payload(Queue& queue, std::uint64_t bytes) {
  payload_bytes_ -= bytes;
  queue.payload_bytes -= bytes;
}

bool ReactorImpl::reply(Request& request, std::vector<std::byte> data) {
  if (request.data_bytes < data.size()) {
    complete(request, nvme::sc::kDataSglLengthInvalid);
    return false;
  }
  std::unique_ptr<Payload> made(new (std::nothrow) Payload{std::move(data), nullptr});
  if (made == nullptr || !take_payload(Queue::of(request), made->data.size())) {
    complete(request, nvme::sc::kCommandInterrupted);
    return false;
  }
  set_result(request, nvme::sc::kSuccess);
  Payload* const payload = made.release();
  request.context = payload;
  request.on_done = &ReactorImpl::payload_sent;
  request.connection->push(request, payload->data.data(),
                           static_cast<std::uint32_t>(payload->data.size()));
  return true;
}

void ReactorImpl::payload_sent(Request& request) {
  const std::unique_ptr<Payload> payload(static_cast<Payload*>(request.context));
  request.context = nullptr;
  Queue& queue = Queue::of(request);
  queue.reactor->give_payload(queue, payload->data.size());
  plain_done(request);
}

void ReactorImpl::pull(Request& request, std::uint32_t bytes,
                       std::function<void(Request&, std::vector<std::byte>)> next) {
  if (request.data_bytes < bytes) return pull_failed(request, nvme::sc::kDataSglLengthInvalid);
  // More than the command needs is taken as long as it is no attempt to make us hold much.
  if (request.data_bytes > 8192) return pull_failed(request, nvme::sc::kInvalidField);
  std::unique_ptr<Payload> made;
  const std::uint16_t there = or_interrupted([&] {
    made = std::make_unique<Payload>(
        Payload{std::vector<std::byte>(request.data_bytes), std::move(next)});
    return nvme::sc::kSuccess;
  });
  if (there != nvme::sc::kSuccess) {
    if (Queue::of(request).state == Queue::State::connecting) throw std::bad_alloc();
    return pull_failed(request, there);
  }
  if (!take_payload(Queue::of(request), request.data_bytes)) {
    return pull_failed(request, nvme::sc::kCommandInterrupted);
  }
  Payload* const payload = made.release();
  request.context = payload;
  request.on_pulled = &ReactorImpl::payload_pulled;
  request.connection->pull(request, payload->data.data());
}

// The data of a Connect may come better the next time: its connection waits for another one.
void ReactorImpl::pull_failed(Request& request, std::uint16_t status) {
  Queue& queue = Queue::of(request);
  if (queue.state != Queue::State::connecting) return complete(request, status);
  queue.state = Queue::State::awaiting_connect;
  refuse_connect(request, status, do_not_retry(status));
}

void ReactorImpl::payload_pulled(Request& request) {
  const std::unique_ptr<Payload> payload(static_cast<Payload*>(request.context));
  request.context = nullptr;
  Queue& queue = Queue::of(request);
  ReactorImpl& self = *queue.reactor;
  self.give_payload(queue, payload->data.size());
  if (!request.pull_status.ok()) {
    return self.pull_failed(request, nvme::sc::kTransientTransportError);
  }
  if (queue.state == Queue::State::closing) {
    return self.complete(request, nvme::sc::kAbortedSqDeletion);
  }
  payload->next(request, std::move(payload->data));
}

SubsystemStats ReactorImpl::stats() const {
  SubsystemStats stats;
  stats.admin_commands = counters_.admin_commands.get();
  stats.io_commands = counters_.io_commands.get();
  stats.commands_failed = counters_.commands_failed.get();
  stats.host_reads = counters_.host_reads.get();
  stats.host_writes = counters_.host_writes.get();
  stats.bytes_read = counters_.bytes_read.get();
  stats.bytes_written = counters_.bytes_written.get();
  stats.buffer_waits = counters_.buffer_waits.get();
  stats.payloads_refused = counters_.payloads_refused.get();
  return stats;
}

}  // namespace furrow::transport
