// Establishes that no byte stream makes the PDU decoder read or write out of bounds, in either
// direction and with every format, and that how the stream is cut does not change its events: the
// stream is decoded whole and again in pieces whose sizes are drawn from the input.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <span>

#include "tests/transport/pdu_trace.h"

namespace {

using furrow::transport::PduDecoder;

PduDecoder make_decoder(std::uint8_t choice, std::uint8_t pda) {
  PduDecoder decoder((choice & 1) != 0 ? PduDecoder::Role::initiator : PduDecoder::Role::target);
  if ((choice & 2) != 0) decoder.set_initialized();
  decoder.set_format({(choice & 4) != 0, (choice & 8) != 0, static_cast<std::uint8_t>(pda & 31)});
  decoder.set_limits({4096, 65536});
  return decoder;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const std::span stream(reinterpret_cast<const std::byte*>(data) + 4, size - 4);
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
