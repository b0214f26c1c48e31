// Establishes that no host, whatever it sends and when, harms a target or another host: nothing is
// read or written out of bounds, no request is lost or answered twice, what the target sends stays
// well formed and within what was asked, every connection ends, of two fused commands both succeed
// or none, and another, well-behaved host is served all the time: it can take a reservation away
// that is in its way. How: the whole target (FuzzTarget). An input is a script (script.h): ICReq
// and Connect of an admin and an I/O queue are done, of one host or of two, then come capsules,
// H2CData, further connections and raw bytes, their digests made right, and wrong only where the
// script says so.
#include <cstring>
#include <memory>
#include <string>

#include "tests/transport/fuzz_commands.h"
#include "tests/transport/fuzz_host.h"
#include "tests/transport/fuzz_target.h"

namespace furrow::fuzz {
namespace {

using namespace transport;

constexpr std::size_t kHostsMax = 9;
constexpr std::uint32_t kSendBytesMax = 20000;

// Of an input's first byte.
constexpr std::uint8_t kHeaderDigest = 1, kDataDigest = 2, kNobody = 4, kRival = 8;
constexpr std::uint8_t kSilent = 16;  // of another connection's: no ICReq is sent

// Whose an association is: a host's, by its NQN and its identifier.
struct Identity {
  const char* nqn;
  std::uint8_t id;  // 0: none
  std::uint16_t cntlid = 0;
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

  // Hosts with two queues each: one that behaves, and one or two that do as the script says.
  void begin() {
    bring_up(bystander_, 0, 0);
    const std::uint8_t format = script_.u8() & 15, pda = script_.u8() & 31;
    entries_ = 2u << script_.choice(5);
    cattr_ = script_.wrong() ? 0 : nvme::kCattrNoFlowControl;
    if ((format & kNobody) != 0) first_.id = 0;
    if ((format & kRival) != 0) bring_up(rival_, 0, 0);
    bring_up(first_, format, pda);
  }
  void bring_up(Identity& who, std::uint8_t digests, std::uint8_t pda) {
    add_host(digests, pda);
    who.cntlid = connect_queue(host(), 0, who);
    enable(host());
    add_host(digests, pda);
    connect_queue(host(), 1, who);
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
    if ((digests & kSilent) != 0) return;
    std::byte out[kFrontBytesMax];
    const auto bytes = PduEncoder::icreq(out, pda, (digests & kHeaderDigest) != 0,
                                         (digests & kDataDigest) != 0, 0);
    send(host(), Bytes(out, out + bytes));
    settle();
  }

  ConnectFields connect_fields(std::uint16_t qid, const Identity& who) {
    ConnectFields fields;
    fields.qid = qid;
    fields.data.hostid[0] = who.id;
    fields.data.cntlid = qid == 0 ? nvme::kCntlidDynamic : who.cntlid;
    fields.sqsize = qid == 0 ? 31 : entries_ - 1;
    fields.cattr = cattr_;
    put(fields.data.subnqn, target_.nqn());
    put(fields.data.hostnqn, who.nqn);
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
  std::uint16_t connect_queue(FuzzHost& to, std::uint16_t qid, const Identity& who) {
    const std::uint16_t cid = send_connect(to, connect_fields(qid, who));
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
    sqe.flags |= nvme::kPsdtSgl;
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
      case 1:
        return send_known(reservation_command(script_));
      case 2:
        return send_pair();
      case 3:
        return send_known(disk_command(script_));
      case 4:
        return send_known(zone_command(script_));
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
        nvme::admin::kAsyncEvent, nvme::admin::kKeepAlive,   nvme::nvm::kCompare};
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
    send(host(), spoil(capsule(host(), sqe, data), sizeof(CapsuleCmd), data.size()));
  }

  void send_known(const FuzzCommand& known) {
    send_capsule(host(), known.sqe, known.data, known.length);
  }
  // Both, in one piece, or what the script makes of it.
  void send_pair() {
    const FuzzPair pair = fused_pair(script_);
    FuzzHost& to = host();
    const bool swapped = (pair.shape & kSwapped) != 0;
    std::uint16_t cids[2] = {};
    for (unsigned i = 0; i < 2; ++i) {
      const bool second = (i == 1) != swapped;
      if ((pair.shape & (second ? kNoSecond : kNoFirst)) != 0) continue;
      const FuzzCommand& half = second ? pair.second : pair.first;
      cids[second ? 1 : 0] = send_capsule(to, half.sqe, half.data, half.length);
      if (i == 0 && (pair.shape & kBetween) != 0) command();
    }
    settle();
    if ((pair.shape & (kNoFirst | kNoSecond)) != 0) return;
    const nvme::Cqe* const first = to.only_answer(cids[0]);
    const nvme::Cqe* const second = to.only_answer(cids[1]);
    if (first == nullptr || second == nullptr) return;
    require((first->sct_sc() == 0) == (second->sct_sc() == 0), "of a pair both succeed or none");
  }

  // Perhaps changes a byte of the header, its digest made right (or left wrong), or of the data's
  // digest.
  Bytes spoil(Bytes pdu, std::size_t header_bytes, std::size_t data_bytes) {
    const bool digested = data_bytes != 0 && host().encoder.format().data_digest;
    if (digested && script_.wrong()) pdu.back() ^= std::byte{1};
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
    send(host(),
         spoil(with_data(host(), Bytes(out, out + bytes), data), sizeof(DataPdu), data.size()));
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
    const std::uint8_t who = script_.u8(), choice = script_.u8();
    ConnectFields fields = connect_fields(who & 3, (who & 4) != 0 ? rival_ : first_);
    if ((who & 8) != 0) fields.data.hostid[who >> 4] ^= script_.u8();
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

  std::uint16_t status_of(const FuzzCommand& sent) {
    const std::uint16_t cid = send_capsule(host(), sent.sqe, sent.data, sent.length);
    FuzzTarget::wait_for([&] { return host().answers.contains(cid); }, [this] { settle(); },
                         "a host that behaves is answered");
    return host().answers[cid].sct_sc();
  }
  // What others have reserved is cleared: whoever registers may do so.
  void clear_reservations() {
    namespace wire = nvme::reservation;
    const std::uint64_t keys[] = {0, 0xB15};
    FuzzCommand enrol, clear;
    enrol.sqe.opc = wire::kRegister;
    enrol.sqe.cdw10 = 2 | wire::kIgnoreExistingKey;  // replace
    clear.sqe.opc = wire::kRelease;
    clear.sqe.cdw10 = 1;
    enrol.sqe.nsid = clear.sqe.nsid = kPages;
    append(enrol.data, keys, sizeof keys);
    append(clear.data, &keys[1], sizeof keys[1]);
    require(status_of(enrol) == 0, "a host that behaves can register");
    require(status_of(clear) == 0, "a host that behaves can clear reservations");
  }
  void serve_bystander() {
    using_ = 1;
    settle();
    clear_reservations();
    const Bytes page = patterned(77, 3000);
    FuzzCommand store;
    store.sqe.opc = nvme::kv::kStore;
    store.sqe.nsid = kPages;
    store.sqe.cdw2 = 0xB15;
    store.sqe.cdw10 = static_cast<std::uint32_t>(page.size());
    store.sqe.cdw11 = 4;
    FuzzCommand retrieve = store;
    store.data = page;
    require(status_of(store) == 0, "a host that behaves can store");
    retrieve.sqe.opc = nvme::kv::kRetrieve;
    retrieve.length = store.sqe.cdw10;
    const std::uint16_t cid = host().next_cid;
    require(status_of(retrieve) == 0 && host().data[cid] == page,
            "a host that behaves gets its page back");
  }

  ScriptReader script_;
  FuzzTarget target_;
  std::vector<std::unique_ptr<FuzzHost>> hosts_;  // the first two behave
  std::size_t using_ = 0;
  Identity bystander_{"nqn.2014-08.org.nvmexpress:uuid:66666666-7777-8888-9999-0", 9};
  Identity first_{"nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-5", 1};
  Identity rival_{"nqn.2014-08.org.nvmexpress:uuid:22222222-2222-3333-4444-5", 2};
  std::uint32_t entries_ = 32;
  std::uint8_t cattr_ = nvme::kCattrNoFlowControl;
};

}  // namespace
}  // namespace furrow::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  furrow::fuzz::Conversation(data, size).run();
  return 0;
}
