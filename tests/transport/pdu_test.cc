// Establishes that every PDU survives encode and decode in every format, that how the stream is cut
// does not change the events, and that each malformed PDU of reference/nvme-tcp.md that can be told
// without knowing commands is refused with the right fatal status and field offset.
// How: random streams with printed seeds, decoded whole, in random pieces and byte by byte; then
// one hand-made damage for each rule, and every type in each direction, before and after set-up.
#include "transport/pdu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string_view>

#include "tests/log/test_seed.h"
#include "tests/transport/fuzz_pdus.h"
#include "tests/transport/malformed_pdus.h"
#include "tests/transport/pdu_trace.h"

namespace furrow::transport::pdu_test {
namespace {

using Event = PduDecoder::Event;
using Role = PduDecoder::Role;

std::vector<std::byte> bytes_of(std::mt19937_64& random, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

void append(std::vector<std::byte>& stream, std::span<const std::byte> bytes) {
  stream.insert(stream.end(), bytes.begin(), bytes.end());
}

void append_data(std::vector<std::byte>& stream, const PduEncoder& encoder,
                 std::span<const std::byte> data) {
  append(stream, data);
  if (data.empty() || !encoder.format().data_digest) return;
  std::byte digest[kDigestBytes];
  PduEncoder::put_digest(digest, crc32c(data));
  append(stream, digest);
}

nvme::Sqe command(std::uint32_t in_capsule) {
  nvme::Sqe sqe;
  sqe.opc = 1;
  sqe.cid = 7;
  sqe.sgl_type = in_capsule != 0 ? 0x01 : 0x5A;
  sqe.sgl_length = in_capsule;
  return sqe;
}

// One random PDU for the role; returns its data.
std::vector<std::byte> append_random_pdu(std::vector<std::byte>& stream, const PduEncoder& encoder,
                                         Role role, std::mt19937_64& random) {
  std::byte header[kFrontBytesMax];
  const std::size_t size = 1 + random() % (random() % 4 == 0 ? 8000 : 40);
  std::vector<std::byte> data;
  std::uint32_t length = 0;
  const bool first = random() % 2 == 0;
  if (role == Role::target && first) {
    if (random() % 2 == 0) data = bytes_of(random, size);
    const auto count = static_cast<std::uint32_t>(data.size());
    length = encoder.capsule_cmd(header, command(count), count);
  } else if (role == Role::target || first) {
    data = bytes_of(random, size);
    const PduType type = role == Role::target ? PduType::h2c_data : PduType::c2h_data;
    length = encoder.data(header, type, static_cast<std::uint16_t>(random()), 5, random(),
                          static_cast<std::uint32_t>(size), kFlagLast);
  } else if (random() % 2 == 0) {
    nvme::Cqe cqe;
    cqe.dw0 = random();
    length = encoder.capsule_resp(header, cqe);
  } else {
    length = encoder.r2t(header, 3, 4, random(), random());
  }
  append(stream, {header, length});
  append_data(stream, encoder, data);
  return data;
}

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c(std::as_bytes(std::span(std::string_view("123456789")))), 0xE3069283u);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32)), 0x8A9136AAu);  // RFC 3720, B.4: 32 bytes of zero
  const auto bytes = std::as_bytes(std::span(std::string_view("two pieces make one")));
  EXPECT_EQ(crc32c(bytes.subspan(5), crc32c(bytes.first(5))), crc32c(bytes));
}

struct Format {
  Role role;
  PduFormat format;
};

PduDecoder decoder_for(const Format& format) {
  PduDecoder decoder(format.role);
  decoder.set_initialized();
  decoder.set_format(format.format);
  return decoder;
}

TEST(Pdu, RoundTripUnderArbitrarySplits) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 300; ++round) {
    const Format format{random() % 2 == 0 ? Role::target : Role::initiator,
                        {random() % 2 == 0, random() % 2 == 0,
                         static_cast<std::uint8_t>(random() % 3 == 0 ? random() % 32 : 0)}};
    PduEncoder encoder;
    encoder.set_format(format.format);
    std::vector<std::byte> stream;
    std::vector<std::vector<std::byte>> sent;
    for (int i = 0; i < 12; ++i) {
      sent.push_back(append_random_pdu(stream, encoder, format.role, random));
    }
    PduDecoder whole = decoder_for(format);
    const PduTrace expected = trace_pdus(
        whole, stream, [](std::size_t left) { return left; }, [] { return false; });
    std::size_t headers = 0;
    for (const auto& entry : expected.entries) {
      ASSERT_NE(entry.event, Event::error) << static_cast<int>(entry.error.fes);
      if (entry.event == Event::header) ++headers;
      if (entry.event == Event::end) {
        EXPECT_TRUE(entry.intact);
        EXPECT_EQ(entry.data, sent[headers - 1]);
      }
    }
    ASSERT_EQ(headers, sent.size());
    const std::size_t piece_max = round % 3 == 0 ? 1 : round % 3 == 1 ? 100 : 5000;
    PduDecoder cut = decoder_for(format);
    EXPECT_EQ(
        trace_pdus(
            cut, stream, [&](std::size_t left) { return 1 + random() % std::min(left, piece_max); },
            [&] { return random() % 2 == 0; }),
        expected);
  }
}

TEST(Pdu, IcAndTermRequests) {
  std::byte buffer[kTermReqBytesMax];
  PduDecoder target(Role::target);
  std::span<const std::byte> input(buffer, PduEncoder::icreq(buffer, 3, true, false, 9));
  ASSERT_EQ(target.next(input), Event::header);
  EXPECT_EQ(target.header<IcReq>().hpda, 3);
  EXPECT_EQ(target.header<IcReq>().digests, 1);
  EXPECT_EQ(target.header<IcReq>().maxr2t, 9u);
  EXPECT_TRUE(input.empty());

  PduDecoder initiator(Role::initiator);
  input = {buffer, PduEncoder::icresp(buffer, 0, false, true, 131072)};
  ASSERT_EQ(initiator.next(input), Event::header);
  EXPECT_EQ(initiator.header<IcResp>().maxh2cdata, 131072u);
  initiator.set_initialized();
  initiator.set_format({true, true, 0});  // a TermReq has no digests all the same
  const std::vector<std::byte> offending(72, std::byte{1});
  input = {buffer, PduEncoder::term_req(buffer, PduType::c2h_term_req,
                                        {Fes::header_digest, 0x12345678}, offending)};
  EXPECT_EQ(input.size(), 24u + 72u);
  ASSERT_EQ(initiator.next(input), Event::header);
  const auto& term = initiator.header<TermReq>();
  EXPECT_EQ(term.fes, 3);
  EXPECT_EQ(term.fei_low | std::uint32_t{term.fei_high} << 16, 0x12345678u);
  EXPECT_EQ(initiator.next(input), Event::end);
}

TEST(Pdu, DataDigestMismatchIsReportedNotFatal) {
  PduEncoder encoder;
  encoder.set_format({false, true, 0});
  std::vector<std::byte> stream(kFrontBytesMax);
  const std::vector<std::byte> data(100, std::byte{5});
  stream.resize(encoder.data(stream.data(), PduType::h2c_data, 1, 2, 0, 100, kFlagLast));
  append_data(stream, encoder, data);
  std::vector<std::byte> twice = stream;
  append(twice, stream);
  twice[30] ^= std::byte{1};
  PduDecoder decoder = decoder_for({Role::target, encoder.format()});
  const PduTrace trace = trace_pdus(
      decoder, twice, [](std::size_t) { return 1; }, [] { return true; });
  ASSERT_EQ(trace.entries.size(), 4u);
  EXPECT_FALSE(trace.entries[1].intact);
  EXPECT_TRUE(trace.entries[3].intact);
}

// With something behind it.
std::vector<std::byte> well_formed(PduType type, const PduFormat& format) {
  std::vector<std::byte> stream = fuzz::well_formed_pdu(type, format, kMalformedDataBytes);
  stream.resize(stream.size() + 256);
  return stream;
}

class MalformedPdu : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedPdu, IsRefused) {
  const Malformed& bad = GetParam();
  for (const bool damaged : {false, true}) {
    std::vector<std::byte> stream = well_formed(bad.type, bad.format);
    if (damaged) std::memcpy(stream.data() + bad.at, &bad.value, bad.bytes);
    PduDecoder decoder(bad.role);
    if (bad.initialized) decoder.set_initialized();
    decoder.set_format(bad.format);
    decoder.set_limits({8192, 4096});
    std::span<const std::byte> input(stream);
    const Event event = decoder.next(input);
    if (damaged) {
      ASSERT_EQ(event, Event::error);
      EXPECT_EQ(static_cast<int>(decoder.error().fes), static_cast<int>(bad.fes));
      EXPECT_EQ(decoder.error().information, bad.information);
      EXPECT_EQ(decoder.next(input), Event::error) << "an error is final";
    } else {
      EXPECT_EQ(event, Event::header) << "the undamaged PDU must pass";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, MalformedPdu, testing::ValuesIn(kMalformedPdus));

// Who sends what (section 3.6 of the specification), beside the codec's own tables.
bool is_sent_to(Role role, unsigned type) {
  constexpr unsigned kToTargets[] = {0x00, 0x02, 0x04, 0x06};
  constexpr unsigned kToHosts[] = {0x01, 0x03, 0x05, 0x07, 0x09};
  return role == Role::target ? std::ranges::find(kToTargets, type) != std::end(kToTargets)
                              : std::ranges::find(kToHosts, type) != std::end(kToHosts);
}

// What the peer learns when a decoder has refused a PDU: the error, and the bytes that it was.
void expect_told(Role role, const PduDecoder& refused, Fes fes) {
  EXPECT_EQ(static_cast<int>(refused.error().fes), static_cast<int>(fes));
  EXPECT_EQ(refused.error().information, 0u) << "the type is at 0";
  const auto offending = refused.offending();
  EXPECT_EQ(offending.size(), sizeof(PduCommon)) << "no more than that was waited for";
  const bool target = role == Role::target;
  std::byte buffer[kTermReqBytesMax], told[sizeof(PduCommon)];
  std::span<const std::byte> input(
      buffer, PduEncoder::term_req(buffer, target ? PduType::c2h_term_req : PduType::h2c_term_req,
                                   refused.error(), offending));
  PduDecoder peer(target ? Role::initiator : Role::target);
  ASSERT_EQ(peer.next(input), Event::header);
  EXPECT_EQ(peer.header<TermReq>().fes, static_cast<std::uint16_t>(fes));
  EXPECT_EQ(peer.header<TermReq>().fei_low, 0);
  EXPECT_EQ(peer.header<TermReq>().fei_high, 0);
  ASSERT_EQ(peer.data_bytes(), sizeof told);
  peer.set_destination(told);
  ASSERT_EQ(peer.next(input), Event::end);
  EXPECT_TRUE(std::ranges::equal(told, offending));
}

TEST(Pdu, EveryTypeInEachDirectionAndPhase) {
  for (unsigned number = 0; number < 3 * 2 * 2 * 256; ++number) {
    const unsigned type = number % 256;
    const Role role = number / 256 % 2 == 0 ? Role::target : Role::initiator;
    const bool initialized = number / 512 % 2 == 1;
    const PduFormat formats[] = {kPlain, kBothDigests, {true, false, 7}};
    const PduFormat& format = formats[number / 1024];
    const bool known = is_sent_to(Role::target, type) || is_sent_to(Role::initiator, type);
    std::vector<std::byte> stream =
        well_formed(known ? static_cast<PduType>(type) : PduType::capsule_cmd, format);
    stream[0] = static_cast<std::byte>(type);
    PduDecoder decoder(role);
    if (initialized) decoder.set_initialized();
    decoder.set_format(format);
    std::span<const std::byte> input(stream);
    const Event event = decoder.next(input);
    SCOPED_TRACE(testing::Message()
                 << "type " << type << (role == Role::target ? " to a target" : " to a host")
                 << (initialized ? ", initialized" : ""));
    const bool init = type <= 0x01, term = type == 0x02 || type == 0x03;
    if (!is_sent_to(role, type)) {
      ASSERT_EQ(event, Event::error);
      expect_told(role, decoder, Fes::invalid_header_field);
    } else if (!term && init == initialized) {
      ASSERT_EQ(event, Event::error);
      expect_told(role, decoder, Fes::sequence);
    } else {
      ASSERT_EQ(event, Event::header);
      EXPECT_EQ(static_cast<unsigned>(decoder.type()), type);
    }
  }
}

TEST(Pdu, HeaderDigestMismatchIsFatal) {
  std::vector<std::byte> stream = well_formed(PduType::h2c_data, {true, false, 0});
  stream[10] ^= std::byte{1};  // TTAG: nothing but the digest can tell
  std::uint32_t digest;
  std::memcpy(&digest, stream.data() + 24, 4);
  PduDecoder decoder = decoder_for({Role::target, {true, false, 0}});
  std::span<const std::byte> input(stream);
  ASSERT_EQ(decoder.next(input), Event::error);
  EXPECT_EQ(static_cast<int>(decoder.error().fes), static_cast<int>(Fes::header_digest));
  EXPECT_EQ(decoder.error().information, digest);
  EXPECT_EQ(decoder.offending().size(), 28u);
}

TEST(Pdu, PdoInsideTheHeaderDigestIsRefused) {
  std::vector<std::byte> stream = well_formed(PduType::h2c_data, {true, false, 0});
  stream[3] = std::byte{24};
  PduEncoder::put_digest(stream.data() + 24, crc32c(std::span(stream).first(24)));
  PduDecoder decoder = decoder_for({Role::target, {true, false, 0}});
  std::span<const std::byte> input(stream);
  ASSERT_EQ(decoder.next(input), Event::error);
  EXPECT_EQ(decoder.error().information, 3u);
}

TEST(Pdu, DrainedDataIsSkippedAndStillChecked) {
  PduEncoder encoder;
  encoder.set_format(kBothDigests);
  std::vector<std::byte> stream = well_formed(PduType::capsule_cmd, kBothDigests);
  PduDecoder decoder = decoder_for({Role::target, kBothDigests});
  std::span<const std::byte> input(stream);
  ASSERT_EQ(decoder.next(input), Event::header);
  EXPECT_EQ(decoder.data_bytes(), 512u);
  EXPECT_TRUE(decoder.landing().empty());
  ASSERT_EQ(decoder.next(input), Event::end);
  EXPECT_TRUE(decoder.data_intact());
  EXPECT_EQ(input.size(), 256u);
}

}  // namespace
}  // namespace furrow::transport::pdu_test
