#include "log/batch_starts.h"

#include "zone/check.h"

namespace furrow {

void BatchStarts::push_back(std::uint32_t lba) {
  if (tail_.empty() && !blocks_.empty()) decode_last_block();
  FURROW_CHECK(tail_.empty() || lba > tail_.back());
  if (tail_.size() == kBlock) encode_tail();
  if (tail_.empty()) tail_.reserve(kBlock);
  tail_.push_back(lba);
  ++size_;
}

void BatchStarts::truncate(std::uint32_t lba) {
  while (!blocks_.empty() && (tail_.empty() || tail_.front() >= lba)) {
    size_ -= tail_.size();
    decode_last_block();
  }
  const auto from = std::ranges::lower_bound(tail_, lba);
  size_ -= static_cast<std::size_t>(tail_.end() - from);
  tail_.erase(from, tail_.end());
}

void BatchStarts::compact() {
  if (!tail_.empty()) encode_tail();
  tail_.shrink_to_fit();
  blocks_.shrink_to_fit();
  words_.shrink_to_fit();
}

std::optional<std::uint32_t> BatchStarts::last_before(std::uint64_t lba) const {
  if (!tail_.empty() && tail_.front() < lba) return *(std::ranges::lower_bound(tail_, lba) - 1);
  if (blocks_.empty() || blocks_.front().first >= lba) return std::nullopt;
  std::uint32_t last = 0;
  walk(block_of(lba - 1), [&](std::uint32_t each) {
    if (each >= lba) return false;
    last = each;
    return true;
  });
  return last;
}

void BatchStarts::encode_tail() {
  const std::uint32_t first = tail_.front(), width = tail_.back() - first;
  const auto mean = static_cast<std::uint32_t>(width / tail_.size());
  const unsigned low_bits = mean == 0 ? 0 : static_cast<unsigned>(std::bit_width(mean)) - 1;
  const std::size_t begin = words_.size();
  FURROW_CHECK(begin >> kBeginBits == 0);
  blocks_.push_back({first, static_cast<std::uint32_t>(begin) & ((1u << kBeginBits) - 1),
                     low_bits & ((1u << (32 - kBeginBits)) - 1)});
  const std::size_t highs = begin + words_for(tail_.size() * low_bits);
  words_.resize(highs + words_for(tail_.size() + (width >> low_bits)));
  for (std::size_t i = 0; i < tail_.size(); ++i) {
    const std::uint64_t distance = tail_[i] - first;
    const std::uint64_t low = distance & ((std::uint64_t{1} << low_bits) - 1);
    const std::size_t bit = i * low_bits, word = begin + bit / 64, shift = bit % 64;
    words_[word] |= low << shift;
    if (shift + low_bits > 64) words_[word + 1] |= low >> (64 - shift);
    const std::size_t one = (distance >> low_bits) + i;
    words_[highs + one / 64] |= std::uint64_t{1} << one % 64;
  }
  tail_.clear();
}

void BatchStarts::decode_last_block() {
  tail_.clear();
  tail_.reserve(kBlock);
  walk(blocks_.size() - 1, [this](std::uint32_t lba) {
    tail_.push_back(lba);
    return true;
  });
  words_.resize(blocks_.back().begin);
  blocks_.pop_back();
}

}  // namespace furrow
