// Writes the seeds of the transport's fuzz targets: fuzz_seeds target_fuzz|initiator_fuzz|
// discovery_fuzz DIRECTORY. Each is one thing done as it should be, so that mutation starts from
// everything that the target's code can do. What the bytes mean: script.h and the targets.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/transport/script.h"
#include "transport/nvme.h"

namespace {

using namespace furrow;
using fuzz::ScriptWriter;

std::string directory;
int written = 0;

bool write(const void* bytes, std::size_t count) {
  std::ofstream file(directory + "/seed" + std::to_string(written++), std::ios::binary);
  file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
  return file.good();
}
bool write(const ScriptWriter& script) {
  return write(script.bytes().data(), script.bytes().size());
}

// target_fuzz.

constexpr unsigned kUse = 12, kAnswerR2t = 5;

ScriptWriter target_begin(unsigned digests, bool admin) {
  ScriptWriter script;
  script.u8(digests).u8(0).u8(4).u8(0);  // alignment, 32 entries, no flow control
  if (admin) script.u8(kUse).u8(0);
  return script;
}

struct Cdw {
  std::uint32_t cdw10 = 0, cdw11 = 0, cdw12 = 0, cdw13 = 0;
};
// `sgl`: 0 transport, 60h in the capsule.
void command(ScriptWriter& script, unsigned opcode, std::uint32_t nsid, const Cdw& cdw,
             std::uint32_t bytes, unsigned sgl = 0) {
  script.u8(0).u8(0x80 | opcode).u8(0).number(nsid).u8(3).u8(0x0F);
  script.number(cdw.cdw10).number(cdw.cdw11).number(cdw.cdw12).number(cdw.cdw13);
  script.u8(sgl).number(bytes).u8(0);
}

bool target_seeds() {
  bool ok = true;
  for (const unsigned digests : {0u, 3u}) {
    ScriptWriter in_capsule = target_begin(digests, false);
    command(in_capsule, nvme::kv::kStore, 1, {2048, 4}, 2048, 0x60);
    command(in_capsule, nvme::kv::kRetrieve, 1, {4096, 4}, 4096);
    command(in_capsule, nvme::kv::kExist, 1, {0, 4}, 0);
    command(in_capsule, nvme::kv::kList, 1, {1024, 0}, 1024);
    command(in_capsule, nvme::kv::kDelete, 1, {0, 4}, 0);
    command(in_capsule, nvme::kv::kFlush, 1, {}, 0);
    ok &= write(in_capsule);
    ScriptWriter by_r2t = target_begin(digests, false);
    for (const std::uint32_t piece : {0u, 4096u}) {
      command(by_r2t, nvme::kv::kStore, 1, {16384, 4}, 16384);
      for (int i = 0; i < 4; ++i) by_r2t.u8(kAnswerR2t).u8(0).number(piece).u8(0);
    }
    ok &= write(by_r2t);
  }
  ScriptWriter identify = target_begin(0, true);
  for (const std::uint32_t cns : {0u, 1u, 2u, 3u, 5u, 6u, 7u, 8u, 0x1Cu}) {
    command(identify, nvme::admin::kIdentify, 1, {cns, nvme::csi::kKv << 24}, 4096);
  }
  ok &= write(identify);
  ScriptWriter logs = target_begin(0, true);
  for (std::uint32_t log = 0; log < 6; ++log) {
    command(logs, nvme::admin::kGetLogPage, nvme::kNsidAll, {log | 127u << 16}, 512);
  }
  ok &= write(logs);
  ScriptWriter features = target_begin(0, true);
  for (const std::uint32_t feature : {1u, 2u, 4u, 6u, 7u, 0xBu, 0xFu, 0x16u, 0x19u, 0x20u}) {
    command(features, nvme::admin::kGetFeatures, 1, {feature}, 512);
    command(features, nvme::admin::kSetFeatures, 1, {feature, 256}, 512, 0x60);
  }
  ok &= write(features);
  ScriptWriter events = target_begin(0, true);
  for (int i = 0; i < 4; ++i) command(events, nvme::admin::kAsyncEvent, 0, {}, 0);
  command(events, nvme::admin::kAbort, 0, {3u << 16}, 0);
  command(events, nvme::admin::kKeepAlive, 0, {}, 0);
  command(events, nvme::opcode::kFabrics, 0, {0, 0x14, 0x464060}, 0);  // CC: reset
  command(events, nvme::opcode::kFabrics, 0, {0, 0x14, 0x464061}, 0);
  command(events, nvme::opcode::kFabrics, 0, {0, 0x14, 0x468061}, 0);  // shutdown
  command(events, nvme::opcode::kFabrics, 4, {1, 0}, 0);
  ok &= write(events);
  ScriptWriter discovery = target_begin(0, true);
  discovery.u8(11).u8(0).u8(0).u8(14).u8(0).u8(1);
  command(discovery, nvme::opcode::kFabrics, 0, {0, 0x14, 0x460071}, 0);
  command(discovery, nvme::admin::kGetLogPage, 0, {0x70 | 511u << 16}, 2048);
  ok &= write(discovery);
  return ok;
}

// initiator_fuzz: the options, a bring-up that succeeds, then operations (kind, key, length, keys)
// that are answered as they should be.

bool initiator_seeds() {
  bool ok = true;
  for (const unsigned options : {0x10u, 0x13u, 0x18u, 0x04u}) {
    ScriptWriter script;
    script.u8(options).u8(0);
    for (unsigned kind = 0; kind < 6; ++kind) {
      for (const std::uint32_t bytes : {100u, 65536u}) {
        script.u8(0).u8(kind).u8(3).number(bytes).u8(7).u8(0);
      }
    }
    ok &= write(script);
  }
  for (unsigned kind = 0; kind < 6; ++kind) {  // an initiator whose connections end meanwhile
    ScriptWriter script;
    script.u8(0xD0).u8(10 * kind);
    for (unsigned i = 0; i < 3; ++i) {
      script.u8(0).u8(kind).u8(3).number(32768).u8(7);
      if (kind == 1) script.u8(i);                  // a put's condition
      if (kind == 1 || kind == 5) script.u8(0xFF);  // flushed
      script.u8(0xFF).u8(4).u8(0xB4);               // the next answer is that the target hangs up
      script.u8(7).u8(0).u8(0).u8(4).u8(5).u8(0);   // ... or a connection ends; a second passes
    }
    ok &= write(script);
  }
  for (unsigned kind = 0; kind < 6; ++kind) {  // the script speaks while one is answered
    ScriptWriter script;
    script.u8(0x10).u8(0).u8(0).u8(kind).u8(3).number(32768).u8(7).u8(0xFF);
    for (int honest = 0; honest < 40; ++honest) script.u8(0);
    ok &= write(script);
  }
  ScriptWriter wrong;  // ... or from the bring-up on
  wrong.u8(0).u8(0xFF);
  for (int honest = 0; honest < 200; ++honest) wrong.u8(0);
  return ok && write(wrong);
}

bool discovery_seeds() {
  bool ok = true;
  for (std::uint64_t records = 0; records < 4; ++records) {
    std::string page(sizeof(nvme::DiscoveryLogHeader), '\0');
    nvme::DiscoveryLogHeader header;
    header.numrec = records;
    std::memcpy(page.data(), &header, sizeof header);
    for (std::uint64_t i = 0; i < records; ++i) {
      nvme::DiscoveryLogEntry entry;
      entry.trtype = nvme::kTrtypeTcp;
      entry.subtype = nvme::kSubtypeNvm;
      std::snprintf(entry.subnqn, sizeof entry.subnqn, "nqn.2026-11.io.furrow:%d",
                    static_cast<int>(i / 2));
      page.append(reinterpret_cast<const char*>(&entry), sizeof entry);
    }
    ok &= write(page.data(), page.size());
  }
  return ok;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view target = argc == 3 ? argv[1] : "";
  if (argc == 3) directory = argv[2];
  if (target == "target_fuzz") return target_seeds() ? 0 : 1;
  if (target == "initiator_fuzz") return initiator_seeds() ? 0 : 1;
  if (target == "discovery_fuzz") return discovery_seeds() ? 0 : 1;
  std::fprintf(stderr, "usage: fuzz_seeds target_fuzz|initiator_fuzz|discovery_fuzz DIRECTORY\n");
  return 2;
}
