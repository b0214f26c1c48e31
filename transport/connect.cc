// The Connect command: the first of every queue. Its parameters are checked here; the subsystem
// then makes a controller (admin queue) or finds it (I/O queue). Base specification 2.0, 6.3.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "transport/command_checks.h"
#include "transport/reactor_impl.h"

namespace furrow::transport {

namespace sc = nvme::sc;

namespace {

// Where the wrong parameter is, as Connect Invalid Parameters tells it in DW0: IPO and IATTR.
constexpr std::uint32_t kInData = 1u << 16;
constexpr std::uint32_t kIpoQid = 42, kIpoSqsize = 44, kIpoKato = 48;
constexpr std::uint32_t kIpoHostid = kInData | offsetof(nvme::ConnectData, hostid);
constexpr std::uint32_t kIpoCntlid = kInData | offsetof(nvme::ConnectData, cntlid);
constexpr std::uint32_t kIpoSubnqn = kInData | offsetof(nvme::ConnectData, subnqn);
constexpr std::uint32_t kIpoHostnqn = kInData | offsetof(nvme::ConnectData, hostnqn);

Admission invalid_parameter(std::uint32_t where, bool dnr = true) {
  return {sc::kConnectInvalidParameters, dnr, where, nullptr};
}

std::uint16_t qid_of(const nvme::Sqe& command) {
  return static_cast<std::uint16_t>(command.cdw10 >> 16);
}
std::uint32_t entries_of(const nvme::Sqe& command) { return (command.cdw11 & 0xffff) + 1; }

// The NQN in a NUL-padded field; empty when it is empty, unterminated or too long.
template <std::size_t kSize>
std::string nqn_of(const char (&field)[kSize]) {
  const std::size_t length = strnlen(field, kSize);
  if (length > nvme::kNqnBytesMax) return {};
  return std::string(field, length);
}

}  // namespace

void ReactorImpl::connect(Request& request) {
  const nvme::Sqe& command = request.command;
  const std::shared_ptr<Queue> queue = queues_.at(&Queue::of(request));
  counters_.admin_commands.add();
  const bool is_connect =
      command.opc == nvme::opcode::kFabrics && command.fctype() == nvme::fabrics::kConnect;
  if (!is_connect) {
    complete(request, sc::kCommandSequenceError);
    if (queue->open) close(*queue);
    return;
  }
  std::uint16_t status = check_command(command);
  if (status == sc::kSuccess) status = check_sgl(request);
  if (status != sc::kSuccess) return refuse_connect(request, status, true);
  if ((command.cdw10 & 0xffff) != 0) {  // RECFMT
    return refuse_connect(request, sc::kIncompatibleFormat, true);
  }
  queue->state = Queue::State::connecting;
  or_refuse_connect(request, [&] {
    pull(request, sizeof(nvme::ConnectData),
         [this](Request& pulled, const std::vector<std::byte>& data) {
           or_refuse_connect(pulled, [&] { connect_data(pulled, data); });
         });
  });
}

// What a queue and its controller need is allocated here, before Connect is answered. Without
// memory for it this connection ends, and the host may try again; what was registered of it goes
// with it.
template <class Step>
void ReactorImpl::or_refuse_connect(Request& request, Step&& step) {
  try {
    step();
  } catch (const std::bad_alloc&) {
    Queue& queue = Queue::of(request);
    const std::shared_ptr<Queue> keep = queues_.at(&queue);
    refuse_connect(request, sc::kControllerBusy, false);
    if (keep->open) close(*keep);
  }
}

void ReactorImpl::connect_data(Request& request, const std::vector<std::byte>& data) {
  nvme::ConnectData connect;
  std::memcpy(&connect, data.data(), sizeof(connect));
  const std::shared_ptr<Queue> queue = queues_.at(&Queue::of(request));
  const std::string subnqn = nqn_of(connect.subnqn), hostnqn = nqn_of(connect.hostnqn);
  Admission admission = invalid_parameter(kIpoHostnqn);
  if (hostnqn.starts_with("nqn.")) {  // Base specification 2.0, 4.5
    admission = subsystem_.admit(queue, request.command, connect, subnqn, hostnqn);
  }
  complete_connect(request, admission);
}

void ReactorImpl::complete_connect(Request& request, const Admission& admission) {
  Queue& queue = Queue::of(request);
  if (admission.status != sc::kSuccess) {
    queue.state = Queue::State::awaiting_connect;
    return refuse_connect(request, admission.status, admission.dnr, admission.dw0);
  }
  const nvme::Sqe& command = request.command;
  queue.state = Queue::State::live;
  know_host(queue);
  const auto cattr = static_cast<std::uint8_t>(command.cdw11 >> 16);
  queue.connection->set_queue(entries_of(command), (cattr & nvme::kCattrNoFlowControl) != 0);
  if (queue.id != 0) queue.command_sets = queue.controller->command_sets();
  if (queue.id == 0) queue.controller->start();
  request.completion.dw0 = admission.dw0;
  complete(request, sc::kSuccess);
}

void ReactorImpl::refuse_connect(Request& request, std::uint16_t status, bool dnr,
                                 std::uint32_t dw0) {
  subsystem_.count_refused_connect();
  counters_.commands_failed.add();
  request.completion.dw0 = dw0;
  request.completion.set_status(status, dnr);
  request.on_done = &ReactorImpl::plain_done;
  request.connection->complete(request);
}

Admission SubsystemImpl::admit(const std::shared_ptr<Queue>& queue, const nvme::Sqe& command,
                               const nvme::ConnectData& data, const std::string& subnqn,
                               const std::string& hostnqn) {
  const bool discovery = subnqn == nvme::kDiscoveryNqn;
  if (!discovery && subnqn != options_.nqn) return invalid_parameter(kIpoSubnqn);
  if (!discovery && !host_allowed(hostnqn)) return {sc::kConnectInvalidHost, true, 0, nullptr};
  const std::uint32_t entries = entries_of(command);
  const std::uint32_t entries_max =
      qid_of(command) == 0 ? nvme::kAdminEntriesMax : options_.io_queue_entries_max;
  if (entries < 2 || entries > entries_max) return invalid_parameter(kIpoSqsize);
  const std::lock_guard lock(mutex_);
  if (refuse_connects_) return {sc::kControllerBusy, false, 0, nullptr};
  if (queue_entries_ + entries > options_.queue_entries_total_max) return refuse_full();
  const auto kind = discovery ? Controller::Kind::discovery : Controller::Kind::nvm;
  if (qid_of(command) != 0) return admit_io(queue, command, data, kind, hostnqn);
  return admit_admin(queue, command, data, kind, hostnqn);
}

// What is used up comes back when other hosts leave: the host may try again.
Admission SubsystemImpl::refuse_full() {
  full_refused_.fetch_add(1, std::memory_order_relaxed);
  return {sc::kControllerBusy, false, 0, nullptr};
}

bool SubsystemImpl::host_is_full(const std::string& hostnqn) const {
  const auto its = std::count_if(controllers_.begin(), controllers_.end(), [&](const auto& known) {
    return known.second->host().nqn == hostnqn;
  });
  return its >= options_.controllers_per_host_max;
}

void SubsystemImpl::register_queue(const std::shared_ptr<Queue>& queue, std::uint16_t qid,
                                   std::uint32_t entries,
                                   const std::shared_ptr<Controller>& controller) {
  controller->shared.queues.emplace(qid, queue);  // without memory for it nothing has changed
  queue->id = qid;
  queue->entries = entries;
  queue->controller = controller;
  queue_entries_ += entries;
}

Admission SubsystemImpl::admit_admin(const std::shared_ptr<Queue>& queue, const nvme::Sqe& command,
                                     const nvme::ConnectData& data, Controller::Kind kind,
                                     const std::string& hostnqn) {
  // Only the dynamic controller model: a host cannot ask for a certain controller.
  if (data.cntlid != nvme::kCntlidDynamic) return invalid_parameter(kIpoCntlid);
  if (command.cdw12 > Controller::kKatoMsMax) return invalid_parameter(kIpoKato);
  if (host_is_full(hostnqn)) {
    hosts_refused_.fetch_add(1, std::memory_order_relaxed);
    return {sc::kControllerBusy, false, 0, nullptr};
  }
  const std::uint16_t id = free_controller_id();
  if (id == 0) return refuse_full();
  Controller::Host host{hostnqn, {}};
  std::copy_n(data.hostid, host.id.size(), host.id.begin());
  auto controller = std::make_shared<Controller>(*this, *queue->reactor, kind, id, std::move(host),
                                                 command.cdw12);
  register_queue(queue, 0, entries_of(command), controller);
  controllers_.emplace(id, controller);
  return {sc::kSuccess, false, id, std::move(controller)};
}

Admission SubsystemImpl::admit_io(const std::shared_ptr<Queue>& queue, const nvme::Sqe& command,
                                  const nvme::ConnectData& data, Controller::Kind kind,
                                  const std::string& hostnqn) {
  // A controller that is gone may have ended a moment ago (keep alive): the host may start over,
  // hence no DNR.
  const auto found = controllers_.find(data.cntlid);
  const bool known = found != controllers_.end() && found->second->kind() == kind;
  if (!known) return invalid_parameter(kIpoCntlid, false);
  const std::shared_ptr<Controller>& controller = found->second;
  if (controller->host().nqn != hostnqn) return invalid_parameter(kIpoHostnqn);
  if (!std::equal(controller->host().id.begin(), controller->host().id.end(), data.hostid)) {
    return invalid_parameter(kIpoHostid);
  }
  const std::uint16_t qid = qid_of(command);
  if (controller->kind() == Controller::Kind::discovery || qid > controller->queues_granted()) {
    return invalid_parameter(kIpoQid);
  }
  if (!controller->shared.accepts_io) return {sc::kCommandSequenceError, false, 0, nullptr};
  // The queue of an earlier connection with this id may still be on its way out.
  if (controller->shared.queues.contains(qid)) return {sc::kControllerBusy, false, 0, nullptr};
  register_queue(queue, qid, entries_of(command), controller);
  return {sc::kSuccess, false, controller->id(), controller};
}

}  // namespace furrow::transport
