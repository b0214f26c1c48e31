#include "tests/transport/target_seeds.h"

#include "tests/transport/fuzz_pdus.h"
#include "tests/transport/script.h"
#include "transport/nvme.h"

namespace furrow::fuzz {
namespace {

constexpr unsigned kInCapsule = 0x60, kByTransport = 0;  // of a command's SGL
constexpr unsigned kDigests = 3, kTwoHosts = 8, kNoIcreq = 16;

// What a script of target_fuzz says, step by step.
class TargetScript {
 public:
  explicit TargetScript(unsigned format, bool admin = false) {
    script_.u8(format).u8(0).u8(4).u8(0);  // alignment, 32 entries, no flow control
    // Hosts are named by their order without the bystander's: a rival's two come first.
    if (admin) use((format & kTwoHosts) != 0 ? 2 : 0);
  }
  const std::vector<std::uint8_t>& bytes() const { return script_.bytes(); }

  void use(unsigned host) { script_.u8(12).u8(host); }
  void hold() { script_.u8(10); }  // the device, or lets go of it
  void another(unsigned format) { script_.u8(11).u8(format).u8(0); }
  void leave(unsigned how) {
    script_.u8(13).u8(how);
    if (how == 2) script_.u8(0);
  }
  void connect(unsigned who, unsigned choice) { script_.u8(14).u8(who).u8(choice); }
  void pass_ms(unsigned ms) { script_.u8(8).u8(ms / 100); }
  void raw(std::span<const std::byte> bytes) {
    script_.u8(7).u8(static_cast<unsigned>(bytes.size()));
    for (const std::byte byte : bytes) script_.u8(std::to_integer<unsigned>(byte));
  }

  struct Cdw {
    std::uint32_t cdw10 = 0, cdw11 = 0, cdw12 = 0, cdw13 = 0;
  };
  void command(unsigned opcode, std::uint32_t nsid, const Cdw& cdw, std::uint32_t bytes,
               unsigned sgl = kByTransport) {
    unspoiled(opcode, nsid, cdw, bytes, sgl);
    if (digested_ && sgl == kInCapsule) script_.u8(0);
    script_.u8(0);
  }
  // Between the two of a pair.
  void command_between(unsigned opcode, std::uint32_t nsid, const Cdw& cdw, std::uint32_t bytes) {
    fields(opcode, nsid, cdw, bytes, kByTransport);
    script_.u8(0);
  }
  // With a byte of its header changed; its digest made right, or not.
  void spoiled(std::size_t at, unsigned bits, bool digest_right, unsigned sgl = kInCapsule) {
    unspoiled(nvme::kv::kStore, 1, {64, 4}, 64, sgl);
    if (digested_ && sgl == kInCapsule) script_.u8(0);
    script_.u8(0xFF).u8(static_cast<unsigned>(at)).u8(bits);
    if (digested_) script_.u8(digest_right ? 0 : 0xFF);
  }
  // With a wrong digest of its data.
  void rotten(std::uint32_t bytes) {
    unspoiled(nvme::kv::kStore, 1, {bytes, 4}, bytes, kInCapsule);
    script_.u8(0xFF).u8(0);
  }
  void answer_r2t(std::uint32_t piece) {
    script_.u8(5).u8(0).number(piece);
    if (digested_) script_.u8(0);
    script_.u8(0);
  }
  void h2c_data(unsigned cid, unsigned ttag, std::uint32_t offset, std::uint32_t count, bool last) {
    script_.u8(6).u8(cid).u8(ttag).number(offset).number(count).u8(last ? 0xFF : 0).u8(0);
  }
  // which: register, acquire, release, report
  void reserve(unsigned which, std::uint32_t nsid, unsigned action, unsigned type, unsigned key,
               unsigned other) {
    script_.u8(1).u8(which).u8(nsid - 1).u8(action).u8(type).u8(key).u8(other);
    if (which == 3) return void(script_.u8(0).u8(0).u8(0));
    script_.u8(0).u8(0);
  }
  void pair(unsigned shape, std::uint32_t lba, unsigned lbas, unsigned expected, unsigned wanted) {
    script_.u8(2).u8(shape).number(lba).u8(lbas - 1).u8(expected).u8(wanted).u8(0);
  }
  // which: write, read, compare, flush, write zeroes, deallocate
  void disk(unsigned which, std::uint32_t lba, unsigned lbas, unsigned tag, bool by_r2t = false) {
    script_.u8(3).u8(which).number(lba).u8(lbas - 1).u8(0).u8(tag).u8(by_r2t ? 0xFF : 0);
  }
  // which: write, append, read, flush, management send, receive
  void zone(unsigned which, unsigned zone, std::uint32_t lba, unsigned lbas, unsigned action) {
    script_.u8(4).u8(which).u8(zone).number(lba).u8(lbas - 1).u8(action).u8(0).u8(1);
  }
  void set_digested() { digested_ = true; }

 private:
  void unspoiled(unsigned opcode, std::uint32_t nsid, const Cdw& cdw, std::uint32_t bytes,
                 unsigned sgl) {
    script_.u8(0);
    fields(opcode, nsid, cdw, bytes, sgl);
  }
  void fields(unsigned opcode, std::uint32_t nsid, const Cdw& cdw, std::uint32_t bytes,
              unsigned sgl) {
    script_.u8(0x80 | opcode).u8(0).number(nsid).u8(3).u8(0x0F);
    script_.number(cdw.cdw10).number(cdw.cdw11).number(cdw.cdw12).number(cdw.cdw13);
    script_.u8(sgl).number(bytes);
  }

  ScriptWriter script_;
  bool digested_ = false;
};

void add(Corpus& out, const std::string& name, const TargetScript& script) {
  out.emplace(name, script.bytes());
}

void page_seeds(Corpus& out) {
  for (const unsigned digests : {0u, kDigests}) {
    const std::string with = digests == 0 ? "" : "-digests";
    TargetScript in_capsule(digests);
    if (digests != 0) in_capsule.set_digested();
    in_capsule.command(nvme::kv::kStore, 1, {2048, 4}, 2048, kInCapsule);
    in_capsule.command(nvme::kv::kRetrieve, 1, {4096, 4}, 4096);
    in_capsule.command(nvme::kv::kExist, 1, {0, 4}, 0);
    in_capsule.command(nvme::kv::kList, 1, {1024, 0}, 1024);
    in_capsule.command(nvme::kv::kDelete, 1, {0, 4}, 0);
    in_capsule.command(nvme::kv::kFlush, 1, {}, 0);
    add(out, "pages" + with, in_capsule);
    TargetScript by_r2t(digests);
    if (digests != 0) by_r2t.set_digested();
    for (const std::uint32_t piece : {0u, 4096u}) {
      by_r2t.command(nvme::kv::kStore, 1, {16384, 4}, 16384);
      for (int i = 0; i < 4; ++i) by_r2t.answer_r2t(piece);
    }
    add(out, "pages-by-r2t" + with, by_r2t);
  }
}

void admin_seeds(Corpus& out) {
  TargetScript identify(0, true);
  for (const std::uint32_t cns : {0u, 1u, 2u, 3u, 5u, 6u, 7u, 8u, 0x1Cu}) {
    for (const std::uint32_t nsid : {1u, 2u, 3u}) {
      const std::uint32_t csi = nsid == 1 ? nvme::csi::kKv : nsid == 2 ? 0 : nvme::csi::kZoned;
      identify.command(nvme::admin::kIdentify, nsid, {cns, csi << 24}, 4096);
    }
  }
  add(out, "identify", identify);
  TargetScript logs(0, true);
  for (const std::uint32_t log : {0u, 1u, 2u, 3u, 4u, 5u, 0x80u, 0xBFu}) {
    logs.command(nvme::admin::kGetLogPage, nvme::kNsidAll, {log | 127u << 16}, 512);
  }
  add(out, "logs", logs);
  TargetScript features(0, true);
  for (const std::uint32_t feature :
       {1u, 2u, 4u, 6u, 7u, 0xBu, 0xFu, 0x16u, 0x19u, 0x20u, 0x82u, 0x83u}) {
    features.command(nvme::admin::kGetFeatures, 1, {feature}, 512);
    features.command(nvme::admin::kSetFeatures, 1, {feature, 256}, 512, kInCapsule);
  }
  add(out, "features", features);
  TargetScript events(0, true);
  for (int i = 0; i < 4; ++i) events.command(nvme::admin::kAsyncEvent, 0, {}, 0);
  events.command(nvme::admin::kAbort, 0, {3u << 16}, 0);
  events.command(nvme::admin::kKeepAlive, 0, {}, 0);
  events.command(nvme::opcode::kFabrics, 0, {0, 0x14, 0x464060}, 0);  // CC: reset
  events.command(nvme::opcode::kFabrics, 0, {0, 0x14, 0x464061}, 0);
  events.command(nvme::opcode::kFabrics, 0, {0, 0x14, 0x468061}, 0);  // shutdown
  events.command(nvme::opcode::kFabrics, 4, {1, 0}, 0);
  add(out, "events", events);
  TargetScript discovery(0, true);
  discovery.another(0);
  discovery.connect(0, 1);
  discovery.command(nvme::opcode::kFabrics, 0, {0, 0x14, 0x460071}, 0);
  discovery.command(nvme::admin::kGetLogPage, 0, {0x70 | 511u << 16}, 2048);
  add(out, "discovery", discovery);
}

constexpr unsigned kEnrol = 0, kAcquire = 1, kRelease = 2, kReport = 3;
// Of hosts in an input with two of them: their I/O queues, and the second one's admin queue.
constexpr unsigned kRivalsIo = 1, kIo = 3, kAdmin = 2;

void reservation_seeds(Corpus& out) {
  for (const unsigned type : {1u, 2u, 3u, 6u}) {
    TargetScript script(kTwoHosts);
    script.reserve(kEnrol, 1, 0, 0, 0, 1);
    script.reserve(kAcquire, 1, 0, type, 1, 0);
    script.use(kRivalsIo);
    script.command(nvme::kv::kStore, 1, {100, 4}, 100, kInCapsule);
    script.reserve(kReport, 1, 0, 0, 0, 0);
    script.reserve(kEnrol, 1, 0, 0, 0, 2);
    script.command(nvme::kv::kStore, 1, {100, 4}, 100, kInCapsule);
    script.reserve(kAcquire, 1, 1, type, 2, 1);  // preempts
    script.reserve(kReport, 1, 0, 0, 0, 0);
    script.use(kIo);
    script.command(nvme::kv::kRetrieve, 1, {4096, 4}, 4096);
    script.reserve(kEnrol, 1, 0, 0, 0, 3);
    script.reserve(kEnrol, 1, 10, 0, 0, 4);  // another key, whatever it was
    script.use(kRivalsIo);
    script.reserve(kRelease, 1, 0, type, 2, 0);
    script.reserve(kAcquire, 1, 0, type, 2, 0);
    script.reserve(kEnrol, 1, 1, 0, 2, 0);  // leaves
    script.use(kIo);
    script.reserve(kRelease, 1, 1, 0, 4, 0);  // clears
    script.reserve(kReport, 1, 0, 0, 0, 0);
    script.use(kAdmin);
    script.command(nvme::admin::kGetLogPage, 0, {0x80 | 15u << 16}, 64);
    add(out, "reservation-type-" + std::to_string(type), script);
  }
  TargetScript abort(kTwoHosts);
  abort.use(kRivalsIo);
  abort.reserve(kEnrol, 2, 0, 0, 0, 1);
  abort.reserve(kAcquire, 2, 0, 1, 1, 0);
  abort.hold();
  abort.disk(1, 0, 8, 0);
  abort.use(kIo);
  abort.reserve(kEnrol, 2, 0, 0, 0, 2);
  abort.reserve(kAcquire, 2, 2, 2, 2, 1);  // preempts and aborts, while commands are under way
  abort.hold();
  add(out, "reservation-preempt-and-abort", abort);
  TargetScript nobody(4);
  for (unsigned which = 0; which < 4; ++which) nobody.reserve(which, 1, 0, 1, 0, 1);
  add(out, "reservation-of-nobody", nobody);
}

// PairShape of fuzz_commands.h.
void fused_seeds(Corpus& out) {
  TargetScript good(0);
  good.pair(0, 2, 2, 0, 1);
  good.pair(0, 2, 2, 1, 2);
  good.pair(0, 2, 2, 1, 3);     // no longer so
  good.pair(0, 8, 8, 0, 1);     // a whole block
  good.pair(0, 7, 2, 0, 1);     // over its end
  good.pair(0, 2047, 2, 0, 1);  // over the disk's
  good.disk(1, 0, 16, 0);
  add(out, "fused", good);
  TargetScript by_r2t(0);
  by_r2t.disk(0, 2, 2, 3);  // as the command with identifier 3 has it: the first one of the pair
  for (const unsigned shape : {0x80u, 0x88u}) {
    by_r2t.pair(shape, 2, 2, 0, 0);
    if (shape == 0x88) by_r2t.command_between(nvme::nvm::kRead, 2, {0, 0, 7}, 4096);
    for (int i = 0; i < 2; ++i) by_r2t.answer_r2t(0);
  }
  add(out, "fused-by-r2t", by_r2t);
  TargetScript broken(0);
  for (const unsigned shape : {1u, 2u, 4u, 16u, 32u, 64u, 1u, 2u, 2u}) {
    broken.pair(shape, 2, 2, 0, 1);
  }
  broken.pair(8, 2, 2, 0, 1);
  broken.command_between(nvme::nvm::kRead, 2, {0, 0, 7}, 4096);
  broken.pair(2, 2, 2, 0, 1);
  broken.leave(0);
  add(out, "fused-broken", broken);
  TargetScript reserved(kTwoHosts);
  reserved.reserve(kEnrol, 2, 0, 0, 0, 1);
  reserved.reserve(kAcquire, 2, 0, 1, 1, 0);
  reserved.use(kRivalsIo);
  reserved.pair(0, 2, 2, 0, 1);
  reserved.pair(0x80, 2, 2, 0, 1);
  add(out, "fused-reserved", reserved);
}

void disk_seeds(Corpus& out) {
  TargetScript disk(0);
  disk.disk(0, 3, 9, 1);
  disk.disk(0, 8, 16, 2, true);
  disk.answer_r2t(0);
  for (const unsigned which : {1u, 2u, 3u, 5u, 4u, 1u}) disk.disk(which, 3, 9, 1);
  add(out, "disk", disk);
  TargetScript zones(0);
  zones.zone(0, 0, 0, 4, 0);
  zones.zone(1, 0, 0, 4, 0);
  zones.zone(2, 0, 2, 8, 0);
  zones.zone(5, 0, 0, 16, 0);
  for (const unsigned action : {3u, 1u, 2u, 4u, 5u}) zones.zone(4, 1, 0, 1, action);
  zones.zone(3, 0, 0, 1, 0);
  add(out, "zones", zones);
}

// What malformed_test establishes of one connection each, its CVEs among them.
void malformed_seeds(Corpus& out) {
  std::byte icreq[transport::kFrontBytesMax];
  const std::size_t bytes = PduEncoder::icreq(icreq, 0, false, false, 0);
  std::byte wrong[transport::kFrontBytesMax];
  std::copy_n(icreq, bytes, wrong);
  wrong[8] = std::byte{1};
  TargetScript set_up(0);
  set_up.another(kNoIcreq);
  set_up.raw({wrong, bytes});  // another version
  set_up.another(kNoIcreq);
  set_up.raw(well_formed_pdu(PduType::capsule_cmd, {}, 0));  // before ICReq
  set_up.another(kNoIcreq);
  set_up.raw({icreq, 60});
  set_up.leave(0);  // CVE-2026-46135, CVE-2023-5178
  add(out, "bad-set-up", set_up);
  TargetScript again(0);
  again.raw({icreq, bytes});
  again.another(0);
  again.h2c_data(0, 0, 0, 64, true);  // CVE-2026-22998: before Connect
  again.another(0);
  again.command(nvme::kv::kStore, 1, {64, 4}, 64, kInCapsule);  // instead of Connect
  add(out, "bad-before-connect", again);
  TargetScript read(0);
  read.command(nvme::kv::kStore, 1, {4096, 4}, 4096, kInCapsule);
  read.hold();
  read.command(nvme::kv::kRetrieve, 1, {4096, 4}, 4096);
  read.h2c_data(3, 1, 0, 64, true);  // for a read
  read.hold();
  add(out, "bad-h2c-for-a-read", read);
  // CVE-2023-6356, -6535, -6536: of a Store whose R2T has come.
  struct H2c {
    const char* name;
    unsigned cid, ttag;
    std::uint32_t offset, bytes;
    bool last;
  };
  for (const H2c& bad : {H2c{"tag", 2, 200, 0, 64, false}, H2c{"cid", 3, 1, 0, 8192, true},
                         H2c{"offset", 2, 1, 4, 64, false}, H2c{"end", 2, 1, 0, 8196, true},
                         H2c{"wrap", 2, 1, 0xfffffff0, 32, true}, H2c{"early", 2, 1, 0, 64, true},
                         H2c{"late", 2, 1, 0, 8192, false}, H2c{"nothing", 2, 1, 0, 0, true}}) {
    TargetScript script(0);
    for (int i = 0; i < 2; ++i) script.command(nvme::kv::kStore, 1, {8192, 4}, 8192);
    script.h2c_data(bad.cid, bad.ttag, bad.offset, bad.bytes, bad.last);
    add(out, "bad-h2c-" + std::string(bad.name), script);
  }
  TargetScript twice(0);
  twice.command(nvme::kv::kStore, 1, {8192, 4}, 8192);
  for (int i = 0; i < 2; ++i) twice.h2c_data(2, 1, 0, 8192, true);
  add(out, "bad-h2c-twice", twice);
  TargetScript large(0);
  large.command(nvme::kv::kStore, 1, {16388, 4}, 16388, kInCapsule);
  add(out, "bad-capsule-too-large", large);
  constexpr std::size_t kSglLengthAt = 40, kSglTypeAt = 47;
  TargetScript length(0);
  length.spoiled(kSglLengthAt, 4, true);
  add(out, "bad-sgl-length", length);
  TargetScript type(0);
  type.spoiled(kSglTypeAt, nvme::kSglTransport ^ 0x40, true, kByTransport);  // RDMA's
  add(out, "bad-sgl-type", type);
  // CVE-2026-64534, -64535.
  TargetScript data(kDigests);
  data.set_digested();
  data.rotten(600);
  data.command(nvme::kv::kStore, 1, {64, 4}, 64, kInCapsule);
  data.rotten(600);
  data.leave(0);
  add(out, "bad-data-digest", data);
  TargetScript header(kDigests);
  header.set_digested();
  header.spoiled(20, 1, false);
  add(out, "bad-header-digest", header);
  TargetScript term(0);
  term.hold();
  term.command(nvme::kv::kStore, 1, {64, 4}, 64, kInCapsule);
  term.leave(2);
  term.command(nvme::kv::kStore, 1, {64, 4}, 64, kInCapsule);
  term.hold();
  add(out, "term-req", term);
}

}  // namespace

void target_seeds(Corpus& out) {
  page_seeds(out);
  admin_seeds(out);
  reservation_seeds(out);
  fused_seeds(out);
  disk_seeds(out);
  malformed_seeds(out);
}

}  // namespace furrow::fuzz
