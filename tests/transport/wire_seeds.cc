// The seeds of the transport's fuzz targets. What the bytes mean: script.h and the targets.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/fuzz/seeds.h"
#include "tests/transport/fuzz_pdus.h"
#include "tests/transport/malformed_pdus.h"
#include "tests/transport/target_seeds.h"
#include "transport/nvme.h"

namespace furrow::fuzz {
namespace {

CorpusBytes seed_bytes(std::span<const std::byte> bytes) {
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {begin, begin + bytes.size()};
}

// pdu_fuzz: the choice, HPDA or CPDA, how the stream is cut, and the stream.

void add_pdu_seed(Corpus& out, const std::string& name, std::uint8_t choice, std::uint8_t pda,
                  const Bytes& stream) {
  CorpusBytes bytes{choice, pda, 1, 0};
  const CorpusBytes rest = seed_bytes(stream);
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  out.emplace(name, std::move(bytes));
}

void pdu_seeds(Corpus& out) {
  for (const std::uint8_t digests : {0, kHeaderDigests | kDataDigests}) {
    const std::string with = digests == 0 ? "" : "-digests";
    const PduFormat format = format_of(digests, digests == 0 ? 0 : 3);
    const auto stream = [&](std::initializer_list<PduType> types) {
      Bytes all;
      for (const PduType type : types) {
        for (const std::uint32_t data : {0u, 40u}) {
          if (data == 0 && (type == PduType::h2c_data || type == PduType::c2h_data)) continue;
          const Bytes pdu = well_formed_pdu(type, format, data);
          all.insert(all.end(), pdu.begin(), pdu.end());
        }
      }
      return all;
    };
    add_pdu_seed(out, "to-target" + with, digests | kInitialized, format.pda,
                 stream({PduType::capsule_cmd, PduType::h2c_data, PduType::h2c_term_req}));
    add_pdu_seed(
        out, "to-host" + with, digests | kInitialized | kToHost, format.pda,
        stream({PduType::capsule_resp, PduType::c2h_data, PduType::r2t, PduType::c2h_term_req}));
    add_pdu_seed(out, "icreq" + with, digests, format.pda,
                 well_formed_pdu(PduType::icreq, format, 0));
    add_pdu_seed(out, "icresp" + with, digests | kToHost, format.pda,
                 well_formed_pdu(PduType::icresp, format, 0));
  }
  for (const transport::Malformed& bad : transport::kMalformedPdus) {
    Bytes pdu = well_formed_pdu(bad.type, bad.format, transport::kMalformedDataBytes);
    std::memcpy(pdu.data() + bad.at, &bad.value, bad.bytes);
    std::uint8_t choice = kAsIs;
    if (bad.role == PduDecoder::Role::initiator) choice |= kToHost;
    if (bad.initialized) choice |= kInitialized;
    if (bad.format.header_digest) choice |= kHeaderDigests;
    if (bad.format.data_digest) choice |= kDataDigests;
    std::string name = "bad-" + std::string(bad.name);
    std::erase(name, ',');
    std::ranges::replace(name, ' ', '-');
    add_pdu_seed(out, name, choice, bad.format.pda, pdu);
  }
}

// initiator_fuzz: the options, a bring-up that succeeds, then operations (kind, key, length, keys)
// that are answered as they should be.

void initiator_seeds(Corpus& out) {
  const auto add = [&out](const std::string& name, const ScriptWriter& script) {
    out.emplace(name, script.bytes());
  };
  for (const unsigned options : {0x10u, 0x13u, 0x18u, 0x04u}) {
    ScriptWriter script;
    script.u8(options).u8(0);
    for (unsigned kind = 0; kind < 6; ++kind) {
      for (const std::uint32_t bytes : {100u, 65536u}) {
        script.u8(0).u8(kind).u8(3).number(bytes).u8(7).u8(0);
      }
    }
    add("all-kinds-" + std::to_string(options), script);
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
    add("connections-end-" + std::to_string(kind), script);
  }
  for (unsigned kind = 0; kind < 6; ++kind) {  // the script speaks while one is answered
    ScriptWriter script;
    script.u8(0x10).u8(0).u8(0).u8(kind).u8(3).number(32768).u8(7).u8(0xFF);
    for (int honest = 0; honest < 40; ++honest) script.u8(0);
    add("scripted-answers-" + std::to_string(kind), script);
  }
  ScriptWriter wrong;  // ... or from the bring-up on
  wrong.u8(0).u8(0xFF);
  for (int honest = 0; honest < 200; ++honest) wrong.u8(0);
  add("scripted-bring-up", wrong);
}

nvme::DiscoveryLogEntry discovery_entry(std::string_view nqn) {
  nvme::DiscoveryLogEntry entry;
  entry.trtype = nvme::kTrtypeTcp;
  entry.subtype = nvme::kSubtypeNvm;
  std::memcpy(entry.subnqn, nqn.data(), std::min(nqn.size(), sizeof entry.subnqn));
  return entry;
}

void discovery_seeds(Corpus& out) {
  const auto add = [&out](const std::string& name, std::uint64_t numrec,
                          const std::vector<nvme::DiscoveryLogEntry>& entries,
                          std::uint16_t recfmt = 0) {
    nvme::DiscoveryLogHeader header;
    header.numrec = numrec;
    header.recfmt = recfmt;
    Bytes page(sizeof header + entries.size() * sizeof(nvme::DiscoveryLogEntry));
    std::memcpy(page.data(), &header, sizeof header);
    std::byte* at = page.data() + sizeof header;
    for (const nvme::DiscoveryLogEntry& entry : entries) {
      std::memcpy(at, &entry, sizeof entry);
      at += sizeof entry;
    }
    out.emplace(name, seed_bytes(page));
  };
  auto other = discovery_entry("nqn.other:rdma"), referral = discovery_entry("nqn.another");
  other.trtype = 1;
  referral.subtype = nvme::kSubtypeDiscovery;
  const auto good = discovery_entry("nqn.a");
  add("none", 0, {});
  add("several", 5, {good, other, discovery_entry("nqn.b"), referral, good});
  add("more-than-there-are", ~std::uint64_t{0}, {good});
  add("fewer-than-there-are", 0, {good});
  add("another-format", 1, {good}, 1);
  add("impossible-nqns", 6,
      {discovery_entry(""), discovery_entry("no nqn"), discovery_entry("nqn.a b"),
       discovery_entry("nqn." + std::string(220, 'a')),
       discovery_entry("nqn." + std::string(252, 'a')), discovery_entry(nvme::kDiscoveryNqn)});
  out.emplace("cut-off", CorpusBytes(1023));
}

}  // namespace

bool wire_seeds(std::string_view target, Corpus& out) {
  if (target == "pdu_fuzz") {
    pdu_seeds(out);
  } else if (target == "target_fuzz") {
    target_seeds(out);
  } else if (target == "initiator_fuzz") {
    initiator_seeds(out);
  } else if (target == "discovery_fuzz") {
    discovery_seeds(out);
  } else {
    return false;
  }
  return true;
}

}  // namespace furrow::fuzz
