// Establishes that no byte stream makes the PDU decoder read or write out of bounds, in either
// direction and with every format, and that how the stream is cut does not change its events: the
// stream is decoded whole and again in pieces whose sizes are drawn from the input. Digests are
// made right in half of the inputs, so that mutation gets behind them; the mutator knows PDUs.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <span>

#include "tests/transport/fuzz_pdus.h"
#include "tests/transport/pdu_trace.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t size_max);

namespace {

using namespace furrow::fuzz;

PduDecoder make_decoder(std::uint8_t choice, std::uint8_t pda) {
  PduDecoder decoder((choice & kToHost) != 0 ? PduDecoder::Role::initiator
                                             : PduDecoder::Role::target);
  if ((choice & kInitialized) != 0) decoder.set_initialized();
  decoder.set_format(format_of(choice, pda));
  decoder.set_limits({4096, 65536});
  return decoder;
}

// Where the PDUs of a stream begin, and where what follows them does.
std::vector<std::size_t> boundaries(std::span<const std::byte> stream) {
  std::vector<std::size_t> out{0};
  while (const std::size_t bytes = pdu_bytes(stream.subspan(out.back()))) {
    out.push_back(out.back() + bytes);
  }
  return out;
}

// A PDU more, somewhere between the others.
void insert_pdu(Bytes& stream, std::minstd_rand& random, std::uint8_t choice, std::uint8_t pda) {
  const std::vector<std::size_t> places = boundaries(stream);
  const std::size_t at = places[random() % places.size()];
  const Bytes pdu = well_formed_pdu(any_type(random, choice), format_of(choice, pda),
                                    static_cast<std::uint32_t>(1 + random() % 600));
  stream.insert(stream.begin() + static_cast<std::ptrdiff_t>(at), pdu.begin(), pdu.end());
}

// A byte of one PDU's header is another one.
void change_header(Bytes& stream, std::minstd_rand& random) {
  const std::vector<std::size_t> places = boundaries(stream);
  const std::size_t at = places[random() % places.size()] + random() % 72;
  if (at < stream.size()) stream[at] = static_cast<std::byte>(random());
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed) {
  std::minstd_rand random(seed);
  const unsigned how = random() % 4;
  if (size < kPduFrontBytes || how < 2) return LLVMFuzzerMutate(data, size, size_max);
  const auto* const begin = reinterpret_cast<const std::byte*>(data);
  Bytes stream(begin + kPduFrontBytes, begin + size);
  if (how == 2) {
    insert_pdu(stream, random, data[0], data[1]);
  } else {
    change_header(stream, random);
  }
  const std::size_t taken = std::min(stream.size(), size_max - kPduFrontBytes);
  std::copy_n(reinterpret_cast<const std::uint8_t*>(stream.data()), taken, data + kPduFrontBytes);
  return kPduFrontBytes + taken;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < kPduFrontBytes) return 0;
  const auto* const begin = reinterpret_cast<const std::byte*>(data);
  Bytes stream(begin + kPduFrontBytes, begin + size);
  if ((data[0] & kAsIs) == 0) mend_digests(stream, format_of(data[0], data[1]));
  PduDecoder whole = make_decoder(data[0], data[1]);
  const auto expected = furrow::transport::trace_pdus(
      whole, stream, [](std::size_t left) { return left; }, [] { return false; });
  std::minstd_rand random(data[2] + 256u * data[3] + 1u);
  PduDecoder cut = make_decoder(data[0], data[1]);
  const auto got = furrow::transport::trace_pdus(
      cut, stream, [&](std::size_t left) { return 1 + random() % std::min<std::size_t>(left, 97); },
      [&] { return random() % 2 == 0; });
  if (got != expected) std::abort();
  return 0;
}
