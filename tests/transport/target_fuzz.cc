// Establishes that no host, whatever it sends and when, harms a target or another host: nothing is
// read or written out of bounds, no request is lost or answered twice, what the target sends stays
// well formed and within what was asked, every connection ends, and a second, well-behaved host is
// served all the time. How: the whole target (connections, controllers, KV commands) over a pool of
// plain maps, on socket pairs and a clock that the input moves. An input is a script (script.h):
// ICReq and Connect of an admin and an I/O queue are done, then come capsules, H2CData, further
// connections and raw bytes, their digests made right, and wrong only where the script says so.
#include <cstring>
#include <memory>
#include <string>

#include "tests/transport/fake_engine.h"
#include "tests/transport/fuzz_host.h"
#include "tests/transport/fuzz_ring.h"
#include "transport/subsystem.h"
#include "transport/tcp_connection.h"

namespace furrow::fuzz {
namespace {

using namespace transport;

constexpr const char* kHostNqn = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-5";
constexpr const char* kBystanderNqn = "nqn.2014-08.org.nvmexpress:uuid:66666666-7777-8888-9999-0";
constexpr std::size_t kHostsMax = 7;
constexpr std::uint32_t kSendBytesMax = 20000;

SubsystemOptions small_options() {
  SubsystemOptions options;
  // Of each size enough that no number of hosts here can have the last.
  options.buffer_bytes_max = 1 << 20;
  options.transfer_bytes_max = 64 << 10;
  return options;
}

class FuzzTarget {
 public:
  FuzzTarget() {
    VolumeOptions volume;
    volume.name = "pages";
    volume.nsid = 1;
    require(pool_.create_volume(volume).ok(), "a volume can be made");
    auto subsystem = Subsystem::create(pool_, executor_, small_options());
    require(subsystem.ok(), "a subsystem can be made");
    subsystem_ = std::move(*subsystem);
    auto reactor = subsystem_->create_reactor(executor_);
    require(reactor.ok(), "a reactor can be made");
    reactor_ = std::move(*reactor);
    subsystem_->add_port("127.0.0.1", 4420);
    limits_.h2c_data_bytes = subsystem_->options().transfer_bytes_max;
    limits_.stash_bytes_max = 256 << 10;
  }
  ~FuzzTarget() {
    hold(false);
    for (auto& connection : connections_) connection->cut();
    settle();
    require(connections_.empty(), "every connection ends");
    require(reactor_->idle(), "every request and buffer came back");
    require(subsystem_->stats().controllers == 0, "every controller ends");
    require(stats_.stash_bytes == 0, "every stash is dropped");
    reactor_.reset();
    subsystem_.reset();
    require(executor_.timers() == 0, "no timer is left");
  }

  std::unique_ptr<FuzzHost> connect() {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "sockets can be made");
    TcpConnection::Environment environment{ring(), executor_, *reactor_, limits_, stats_};
    environment.context = this;
    environment.on_gone = [](TcpConnection& gone) {
      std::erase_if(static_cast<FuzzTarget*>(gone.context())->connections_,
                    [&](const auto& held) { return held.get() == &gone; });
    };
    connections_.push_back(std::make_unique<TcpConnection>(environment, ends[0], "fuzz"));
    connections_.back()->start();
    return std::make_unique<FuzzHost>(ends[1]);
  }
  // Until nothing moves any more, or for long enough while operations are held.
  void settle() {
    const int turns_max = held_ ? 40 : 100000;
    for (int quiet = 0, turns = 0; quiet < 2; ++turns) {
      if (turns == turns_max) return require(held_, "the target comes to rest");
      bool any = executor_.run_once();
      any |= ring().poll() != 0;
      quiet = any ? 0 : quiet + 1;
    }
  }
  void advance_ms(std::uint64_t ms) { clock_ns_ += ms * 1'000'000; }
  void hold(bool held) { pool_.store(1).hold = held_ = held; }
  bool held() const { return held_; }
  test::FakeStore& store() { return pool_.store(1); }
  const std::string& nqn() const { return subsystem_->nqn(); }

 private:
  std::uint64_t clock_ns_ = 1'000'000'000;
  test::FakeExecutor executor_{clock_ns_};
  test::FakePool pool_;
  std::unique_ptr<Subsystem> subsystem_;
  std::unique_ptr<SubsystemReactor> reactor_;
  TcpLimits limits_;
  TcpStats stats_;
  std::vector<std::unique_ptr<TcpConnection>> connections_;
  bool held_ = false;
};

// What a Connect command says.
struct ConnectFields {
  nvme::ConnectData data;
  std::uint16_t qid = 0;
  std::uint32_t sqsize = 31, kato_ms = 0;
  std::uint8_t cattr = nvme::kCattrNoFlowControl;
  std::uint16_t recfmt = 0;
};

template <std::size_t kSize>
void put(char (&field)[kSize], std::string_view text) {
  std::memset(field, 0, kSize);
  std::memcpy(field, text.data(), std::min(text.size(), kSize));
}

class Conversation {
 public:
  Conversation(const std::uint8_t* data, std::size_t size) : script_(data, size) {}

  void run() {
    begin();
    for (int steps = 0; !script_.empty() && steps < 200; ++steps) {
      const std::uint8_t op = script_.u8();
      step(op & 0x0F);
      if ((op & 0x80) == 0) settle();
    }
    end();
  }

 private:
  void settle() {
    target_.settle();
    for (auto& host : hosts_) host->take();
    target_.settle();
  }
  FuzzHost& host() { return *hosts_[using_]; }
  void send(FuzzHost& to, const Bytes& bytes) {
    to.send(bytes, [this] { settle(); });
  }

  // Two hosts: one that behaves, with two queues, and one that does as the script says.
  void begin() {
    add_host(0, 0);
    bystander_cntlid_ = connect_queue(*hosts_[0], 0, bystander_cntlid_);
    enable(*hosts_[0]);
    add_host(0, 0);
    connect_queue(*hosts_[1], 1, bystander_cntlid_);
    const std::uint8_t format = script_.u8(), pda = script_.u8() & 31;
    entries_ = 2u << script_.choice(5);
    cattr_ = script_.wrong() ? 0 : nvme::kCattrNoFlowControl;
    add_host(format, pda);
    cntlid_ = connect_queue(host(), 0, cntlid_);
    enable(host());
    add_host(format, pda);
    connect_queue(host(), 1, cntlid_);
  }
  // The one that behaves is served, whatever the others did.
  void end() {
    target_.hold(false);
    serve_bystander();
  }

  void add_host(std::uint8_t digests, std::uint8_t pda) {
    if (hosts_.size() == kHostsMax) return;
    hosts_.push_back(target_.connect());
    using_ = hosts_.size() - 1;
    std::byte out[kFrontBytesMax];
    const auto bytes =
        PduEncoder::icreq(out, pda, (digests & 1) != 0, (digests & 2) != 0, script_maxr2t_);
    send(host(), Bytes(out, out + bytes));
    settle();
  }

  ConnectFields connect_fields(std::uint16_t qid, std::uint16_t cntlid) {
    ConnectFields fields;
    fields.qid = qid;
    fields.data.cntlid = qid == 0 ? nvme::kCntlidDynamic : cntlid;
    fields.sqsize = qid == 0 ? 31 : entries_ - 1;
    fields.cattr = cattr_;
    put(fields.data.subnqn, target_.nqn());
    put(fields.data.hostnqn, kHostNqn);
    return fields;
  }
  std::uint16_t send_connect(FuzzHost& to, const ConnectFields& fields) {
    nvme::Sqe sqe;
    sqe.opc = nvme::opcode::kFabrics;
    sqe.nsid = nvme::fabrics::kConnect;
    sqe.cdw10 = std::uint32_t{fields.qid} << 16 | fields.recfmt;
    sqe.cdw11 = (fields.sqsize & 0xffff) | std::uint32_t{fields.cattr} << 16;
    sqe.cdw12 = fields.kato_ms;
    Bytes data(sizeof fields.data);
    std::memcpy(data.data(), &fields.data, sizeof fields.data);
    return send_capsule(to, sqe, data, 0);
  }
  std::uint16_t connect_queue(FuzzHost& to, std::uint16_t qid, std::uint16_t cntlid) {
    ConnectFields fields = connect_fields(qid, cntlid);
    if (&to == hosts_[0].get() || hosts_.size() == 2) put(fields.data.hostnqn, kBystanderNqn);
    const std::uint16_t cid = send_connect(to, fields);
    settle();
    require(to.answers.contains(cid) && to.answers[cid].sct_sc() == 0, "an honest host connects");
    return static_cast<std::uint16_t>(to.answers[cid].dw0);
  }
  void enable(FuzzHost& to) {
    nvme::Sqe sqe;
    sqe.opc = nvme::opcode::kFabrics;
    sqe.nsid = nvme::fabrics::kPropertySet;
    sqe.cdw11 = nvme::property::kCc;
    sqe.cdw12 = nvme::kCcEnable | nvme::kCssAll << nvme::kCcCssShift | 6u << nvme::kCcIosqesShift |
                4u << nvme::kCcIocqesShift;
    send_capsule(to, sqe, {}, 0);
    settle();
  }

  // Returns the identifier. With data it goes in the capsule, else the SGL says `length`.
  std::uint16_t send_capsule(FuzzHost& to, nvme::Sqe sqe, const Bytes& data, std::uint32_t length) {
    sqe.cid = to.next_cid++;
    sqe.flags = nvme::kPsdtSgl;
    sqe.sgl_type = data.empty() ? nvme::kSglTransport : nvme::kSglInCapsule;
    sqe.sgl_length = data.empty() ? length : static_cast<std::uint32_t>(data.size());
    send(to, capsule(to, sqe, data));
    return sqe.cid;
  }
  static Bytes capsule(const FuzzHost& to, const nvme::Sqe& sqe, const Bytes& data) {
    std::byte out[kFrontBytesMax];
    const auto bytes = to.encoder.capsule_cmd(out, sqe, static_cast<std::uint32_t>(data.size()));
    return with_data(to, Bytes(out, out + bytes), data);
  }
  static Bytes with_data(const FuzzHost& to, Bytes pdu, const Bytes& data) {
    pdu.insert(pdu.end(), data.begin(), data.end());
    if (!data.empty() && to.encoder.format().data_digest) {
      pdu.resize(pdu.size() + kDigestBytes);
      PduEncoder::put_digest(pdu.data() + pdu.size() - kDigestBytes, transport::crc32c(data));
    }
    return pdu;
  }

  void step(unsigned op) {
    switch (op) {
      default:
        return command();
      case 5:
        return answer_r2t();
      case 6:
        return any_h2c_data();
      case 7:
        return send(host(), script_.bytes(script_.u8()));
      case 8:
        return target_.advance_ms(script_.u8() * 100u);
      case 9:
        host().reading = !host().reading;
        return;
      case 10:
        return target_.hold(!target_.held());
      case 11:
        return another_host();
      case 12:
        using_ = 2 + script_.choice(static_cast<unsigned>(hosts_.size()) - 2);
        return;
      case 13:
        return leave();
      case 14:
        return any_connect();
    }
  }

  std::uint8_t opcode() {
    static constexpr std::uint8_t kKnown[] = {
        nvme::kv::kStore,         nvme::kv::kRetrieve,       nvme::kv::kList,
        nvme::kv::kDelete,        nvme::kv::kExist,          nvme::kv::kFlush,
        nvme::opcode::kFabrics,   nvme::admin::kGetLogPage,  nvme::admin::kIdentify,
        nvme::admin::kAbort,      nvme::admin::kSetFeatures, nvme::admin::kGetFeatures,
        nvme::admin::kAsyncEvent, nvme::admin::kKeepAlive};
    const std::uint8_t choice = script_.u8();
    return choice < 0x80 ? kKnown[choice % std::size(kKnown)] : choice & 0x7F;
  }
  // Any command, on whatever queue is in use.
  void command() {
    nvme::Sqe sqe;
    sqe.opc = opcode();
    const std::uint8_t cid = script_.u8();
    sqe.cid = cid < 0xE0 ? host().next_cid++ : static_cast<std::uint16_t>(cid & 7);
    sqe.nsid = script_.number();
    sqe.cdw2 = script_.u8() & 7;  // the key's first bytes
    std::uint32_t* const dwords[] = {&sqe.cdw10, &sqe.cdw11, &sqe.cdw12,
                                     &sqe.cdw13, &sqe.cdw14, &sqe.cdw15};
    const std::uint8_t given = script_.u8();
    for (unsigned i = 0; i < std::size(dwords); ++i) {
      if ((given & 1u << i) != 0) *dwords[i] = script_.number();
    }
    const std::uint8_t sgl = script_.u8();
    sqe.sgl_length = script_.number();
    sqe.sgl_type = sgl < 0x60   ? nvme::kSglTransport
                   : sgl < 0xC0 ? nvme::kSglInCapsule
                                : static_cast<std::uint8_t>(sgl << 1);
    sqe.flags = nvme::kPsdtSgl;
    Bytes data;
    if (sqe.sgl_type == nvme::kSglInCapsule) {
      data = patterned(sqe.cid, std::min(sqe.sgl_length, kSendBytesMax));
    }
    send(host(), spoil(capsule(host(), sqe, data), sizeof(CapsuleCmd)));
  }

  // Perhaps changes a byte of the header, its digest made right (or left wrong).
  Bytes spoil(Bytes pdu, std::size_t header_bytes) {
    if (!script_.wrong()) return pdu;
    const std::size_t at = script_.u8() % header_bytes;
    pdu[at] ^= static_cast<std::byte>(script_.u8());
    if (host().encoder.format().header_digest && !script_.wrong()) {
      PduEncoder::put_digest(pdu.data() + header_bytes,
                             transport::crc32c({pdu.data(), header_bytes}));
    }
    return pdu;
  }
  void send_h2c_data(std::uint16_t cid, std::uint16_t ttag, std::uint32_t offset,
                     std::uint32_t count, bool last) {
    const Bytes data = patterned(cid, std::min(count, kSendBytesMax));
    std::byte out[kFrontBytesMax];
    const auto bytes =
        host().encoder.data(out, PduType::h2c_data, cid, ttag, offset,
                            static_cast<std::uint32_t>(data.size()), last ? kFlagLast : 0);
    send(host(), spoil(with_data(host(), Bytes(out, out + bytes), data), sizeof(DataPdu)));
  }
  // The next piece of what an R2T asked for; all of it when the script says 0.
  void answer_r2t() {
    auto& r2ts = host().r2ts;
    const std::uint8_t which = script_.u8();
    std::uint32_t count = script_.number();
    if (r2ts.empty()) return;
    const std::size_t index = which % r2ts.size();
    FuzzHost::R2t& r2t = r2ts[index];
    count = std::min({count == 0 ? r2t.bytes : count, r2t.bytes, kSendBytesMax});
    const FuzzHost::R2t now = r2t;
    r2t.offset += count;
    r2t.bytes -= count;
    if (r2t.bytes == 0) r2ts.erase(r2ts.begin() + static_cast<std::ptrdiff_t>(index));
    send_h2c_data(now.cid, now.ttag, now.offset, count, count == now.bytes);
  }
  void any_h2c_data() {
    const std::uint16_t cid = script_.u8(), ttag = script_.u8();
    const std::uint32_t offset = script_.number(), count = script_.number();
    send_h2c_data(cid, ttag, offset, count, script_.wrong());
  }
  void another_host() {
    const std::uint8_t digests = script_.u8(), pda = script_.u8();
    add_host(digests, pda & 63);
  }
  void leave() {
    switch (script_.choice(3)) {
      case 0:
        return host().hang_up();
      case 1:
        return host().end_output();
      default:
        std::byte term[kTermReqBytesMax];
        const auto bytes =
            PduEncoder::term_req(term, PduType::h2c_term_req, {Fes::sequence, script_.u8()}, {});
        send(host(), Bytes(term, term + bytes));
    }
  }
  void any_connect() {
    ConnectFields fields = connect_fields(script_.u8() & 3, cntlid_);
    const std::uint8_t choice = script_.u8();
    if ((choice & 1) != 0) put(fields.data.subnqn, nvme::kDiscoveryNqn);
    if ((choice & 2) != 0) std::memset(fields.data.subnqn, 'n', sizeof fields.data.subnqn);
    if ((choice & 4) != 0) std::memset(fields.data.hostnqn, 0, sizeof fields.data.hostnqn);
    if ((choice & 8) != 0) std::memset(fields.data.hostnqn, 'n', sizeof fields.data.hostnqn);
    if ((choice & 16) != 0) fields.data.cntlid = script_.u8();
    if ((choice & 32) != 0) fields.sqsize = script_.number();
    if ((choice & 64) != 0) fields.kato_ms = script_.number();
    if ((choice & 128) != 0) fields.recfmt = script_.u8();
    send_connect(host(), fields);
  }

  void serve_bystander() {
    using_ = 1;
    settle();
    const Bytes page = patterned(77, 3000);
    nvme::Sqe store;
    store.opc = nvme::kv::kStore;
    store.nsid = 1;
    store.cdw2 = 0xB15;
    store.cdw10 = static_cast<std::uint32_t>(page.size());
    store.cdw11 = 4;
    const std::uint16_t stored = send_capsule(host(), store, page, 0);
    settle();
    require(host().answers.contains(stored) && host().answers[stored].sct_sc() == 0,
            "a host that behaves can store");
    nvme::Sqe retrieve = store;
    retrieve.opc = nvme::kv::kRetrieve;
    const std::uint16_t got = send_capsule(host(), retrieve, {}, store.cdw10);
    settle();
    require(host().answers.contains(got) && host().answers[got].sct_sc() == 0 &&
                host().data[got] == page,
            "a host that behaves gets its page back");
  }

  ScriptReader script_;
  FuzzTarget target_;
  std::vector<std::unique_ptr<FuzzHost>> hosts_;  // the first two behave
  std::size_t using_ = 0;
  std::uint16_t bystander_cntlid_ = 0, cntlid_ = 0;
  std::uint32_t entries_ = 32, script_maxr2t_ = 0;
  std::uint8_t cattr_ = nvme::kCattrNoFlowControl;
};

}  // namespace
}  // namespace furrow::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  furrow::fuzz::Conversation(data, size).run();
  return 0;
}
