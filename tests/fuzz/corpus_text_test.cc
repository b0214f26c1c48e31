// Establishes that the text of a fuzz target's corpus means the bytes that it was made of, and that
// a text with a mistake in it is refused, with the line, instead of meaning something else.
#include "tests/fuzz/corpus_text.h"

#include <gtest/gtest.h>

#include <random>

namespace furrow::fuzz {
namespace {

std::string refusal(const std::string& text) {
  std::istringstream in(text);
  CorpusReader reader;
  return reader.read(in) ? "" : reader.error();
}

TEST(CorpusText, ComesBackAsItWas) {
  std::mt19937_64 random(1);
  Corpus corpus{{"empty", {}}, {"one", {0}}, {"zeroes", CorpusBytes(16384)}};
  for (unsigned i = 0; i < 50; ++i) {
    CorpusBytes& bytes = corpus["random-" + std::to_string(i)];
    while (bytes.size() < i * 20) {
      bytes.insert(bytes.end(), 1 + random() % 7, static_cast<std::uint8_t>(random()));
    }
  }
  std::string text = "# a comment\n";
  for (const auto& [name, bytes] : corpus) text += corpus_text(name, bytes);
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    EXPECT_LE(end - at, 100u);
  }
  std::istringstream in(text);
  CorpusReader reader;
  const auto read = reader.read(in);
  ASSERT_TRUE(read) << reader.error();
  EXPECT_EQ(*read, corpus);
}

TEST(CorpusText, WrittenByHand) {
  std::istringstream in("[a] 00 ff*3 # three\n\n  0a\n[b]\n");
  const auto read = CorpusReader().read(in);
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, (Corpus{{"a", {0, 0xff, 0xff, 0xff, 0x0a}}, {"b", {}}}));
}

TEST(CorpusText, MistakesAreRefused) {
  EXPECT_EQ(refusal(""), "line 0: there is no input in it");
  EXPECT_EQ(refusal("# nothing\n"), "line 1: there is no input in it");
  EXPECT_EQ(refusal("00\n[a]\n"), "line 1: bytes before the first [name]");
  EXPECT_EQ(refusal("[a]\n00\n[a]\n"), "line 3: there are two inputs [a]");
  for (const char* bad : {"0", "000", "0g", "FF", "0x", "00*", "00*0", "00*x", "00*-1", "00+2",
                          "00*2,", "0011", "00*999999"}) {
    EXPECT_EQ(refusal(std::string("[a]\n") + bad),
              "line 2: \"" + std::string(bad) + "\" is no byte");
  }
  for (const char* bad : {"[", "[]", "[a", "[a]b", "[a/b]", "[..]"}) {
    EXPECT_EQ(refusal(bad), "line 1: \"" + std::string(bad) + "\" is no [name]");
  }
  EXPECT_EQ(refusal("[a]\n00*65537\n"), "line 2: the input is too long");
  EXPECT_EQ(refusal("[a]\n00*65536\n"), "");
  EXPECT_EQ(refusal("[a]\n00*65536 00\n"), "line 2: the input is too long");
}

}  // namespace
}  // namespace furrow::fuzz
