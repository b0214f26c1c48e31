// The text of a fuzz target's corpus (corpus/TARGET.hex): inputs as lines that a diff can show.
//
//   # a comment, to the end of the line
//   [name]            an input: letters, digits, _ and -; what follows are its bytes
//   46 52 00*12 ff    two hexadecimal digits a byte, perhaps repeated (decimal)
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace furrow::fuzz {

using CorpusBytes = std::vector<std::uint8_t>;
using Corpus = std::map<std::string, CorpusBytes>;  // by name

constexpr std::size_t kCorpusInputBytesMax = 64 << 10;

// Reads a corpus, or says which line is wrong and why.
class CorpusReader {
 public:
  std::optional<Corpus> read(std::istream& text) {
    for (std::string line; std::getline(text, line);) {
      ++line_;
      if (!take_line(line.substr(0, line.find('#')))) return std::nullopt;
    }
    if (corpus_.empty() && !fail("there is no input in it")) return std::nullopt;
    return std::move(corpus_);
  }
  const std::string& error() const { return error_; }

 private:
  bool fail(const std::string& why) {
    error_ = "line " + std::to_string(line_) + ": " + why;
    return false;
  }
  bool take_line(const std::string& line) {
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      const bool taken = word.front() == '[' ? begin_input(word) : take_bytes(word);
      if (!taken) return false;
    }
    return true;
  }
  bool begin_input(const std::string& word) {
    const std::string name = word.substr(1, word.size() - 2);
    const bool named =
        word.size() > 2 && word.back() == ']' && std::ranges::all_of(name, [](char c) {
          return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
        });
    if (!named) return fail("\"" + word + "\" is no [name]");
    const auto [input, is_new] = corpus_.emplace(name, CorpusBytes());
    if (!is_new) return fail("there are two inputs " + word);
    input_ = &input->second;
    return true;
  }
  bool take_bytes(const std::string& word) {
    static constexpr std::string_view kDigits = "0123456789abcdef";
    const std::size_t high = kDigits.find(word[0]);
    const std::size_t low = word.size() < 2 ? kDigits.npos : kDigits.find(word[1]);
    if (high == kDigits.npos || low == kDigits.npos) return fail("\"" + word + "\" is no byte");
    std::size_t count = 1;
    if (word.size() != 2) {
      const std::string times = word.substr(std::min<std::size_t>(3, word.size()));
      const bool number = word[2] == '*' && !times.empty() && times.size() < 6 &&
                          times.find_first_not_of("0123456789") == times.npos;
      if (!number || (count = std::stoul(times)) == 0) return fail("\"" + word + "\" is no byte");
    }
    if (input_ == nullptr) return fail("bytes before the first [name]");
    if (count > kCorpusInputBytesMax - input_->size()) return fail("the input is too long");
    input_->insert(input_->end(), count, static_cast<std::uint8_t>(high << 4 | low));
    return true;
  }

  Corpus corpus_;
  CorpusBytes* input_ = nullptr;
  std::size_t line_ = 0;
  std::string error_;
};

inline std::string corpus_text(const std::string& name, const CorpusBytes& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  constexpr std::size_t kLineMax = 100, kRepeatedMin = 4;
  std::string text = "[" + name + "]\n", line;
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t end = at + 1;
    while (end < bytes.size() && bytes[end] == bytes[at]) ++end;
    const std::size_t count = end - at < kRepeatedMin ? 1 : end - at;
    std::string word = {kDigits[bytes[at] >> 4], kDigits[bytes[at] & 15]};
    if (count != 1) word += "*" + std::to_string(count);
    if (!line.empty() && line.size() + 1 + word.size() > kLineMax) {
      text += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    at += count;
  }
  return line.empty() ? text : text + line + "\n";
}

}  // namespace furrow::fuzz
