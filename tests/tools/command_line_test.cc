// Establishes how endpoints, processors and keys are read from the command line and printed, with
// every kind of text that must be refused.
#include "tools/command_line.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <new>
#include <nlohmann/json.hpp>

#include "tools/command.h"
#include "tools/safe_text.h"
#include "zone/aligned_buffer.h"
#include "zone/event_loop.h"

namespace furrow::tools {
namespace {

TEST(SafeText, WhatATerminalObeysIsShown) {
  const std::pair<std::string_view, std::string_view> kTexts[] = {
      {"", ""},
      {"a b\\x~", "a b\\x~"},
      {"k\xc3\xa4se \xe2\x82\xac \xf0\x9f\xa7\x80", "k\xc3\xa4se \xe2\x82\xac \xf0\x9f\xa7\x80"},
      {"\x1b[2Ja\n\r\t", "\\x1b[2Ja\\x0a\\x0d\\x09"},
      {std::string_view("\0\x7f", 2), "\\x00\\x7f"},
      {"\xc2\x9b\xc2\xa0", "\\xc2\\x9b\xc2\xa0"},  // C1's CSI
      {"\xe2\x80\xae|\xe2\x80\xa8",
       "\\xe2\\x80\\xae|\\xe2\\x80\\xa8"},                      // right to left; a line's end
      {"\xe2\x80\x8e|\xd8\x9c", "\\xe2\\x80\\x8e|\\xd8\\x9c"},  // marks of directions
      {"\x9b\xff", "\\x9b\\xff"},
      {"\xc3", "\\xc3"},
      {"\xe2\x82|", "\\xe2\\x82|"},
      {"\xc0\x9b", "\\xc0\\x9b"},  // longer than it need be
      {"\xe0\x82\x9b", "\\xe0\\x82\\x9b"},
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
  };
  for (const auto& [text, shown] : kTexts) {
    EXPECT_EQ(safe_text(text), shown);
    EXPECT_TRUE(text != shown || is_utf8(text));
  }
  EXPECT_TRUE(is_utf8("\x1b\xc2\x9b"));
  EXPECT_FALSE(is_utf8("a\xffz"));
  EXPECT_FALSE(is_utf8("a\xc3"));
}

TEST(SafeText, InJsonItIsEscapedAndSaysTheSame) {
  const std::pair<std::string_view, std::string_view> kTexts[] = {
      {"k\xc3\xa4se \xf0\x9f\xa7\x80", "\"k\xc3\xa4se \xf0\x9f\xa7\x80\""},
      {"\x1b[2Ja\n\x7f\xc2\x9b", "\"\\u001b[2Ja\\n\\u007f\\u009b\""},
      {"\xe2\x80\xae|\xe2\x81\xa6|\xe2\x80\x8f|\xd8\x9c", "\"\\u202e|\\u2066|\\u200f|\\u061c\""},
      {"\xe2\x80\xa8\xe2\x80\x8d", "\"\\u2028\xe2\x80\x8d\""},
      {"raw\xff", "\"raw\xef\xbf\xbd\""},
  };
  for (const auto& [text, shown] : kTexts) {
    EXPECT_EQ(json_text(text, -1), shown);
    if (is_utf8(text)) {
      EXPECT_EQ(nlohmann::json::parse(json_text(text, 2)), text);
    }
  }
  const nlohmann::ordered_json rows{{{"a", 1}, {"b", "\xe2\x80\xae"}}};
  EXPECT_EQ(json_text(rows, 1), "[\n {\n  \"a\": 1,\n  \"b\": \"\\u202e\"\n }\n]");
}

void find_no_memory() { throw std::bad_alloc(); }

TEST(ParseFlagsDeathTest, AProgramWithoutMemorySaysSoAndFails) {
  const auto run_out = [] {
    std::string name = "test";
    char* argv[] = {name.data(), nullptr};
    (void)parse_flags(1, argv);
    []() noexcept { find_no_memory(); }();  // as in a thread, or where nobody catches it
  };
  EXPECT_EXIT(run_out(), ::testing::ExitedWithCode(kExitFailed),
              ": no memory can be had: raise what limits it");
}

TEST(ParseFlagsDeathTest, ABufferForWhichThereIsNoneIsSaidToBeThat) {
#if defined(FURROW_SANITIZED)
  GTEST_SKIP() << "a sanitizer's allocator ends the process itself";
#endif
  const auto run_out = [] {
    std::string name = "test";
    char* argv[] = {name.data(), nullptr};
    (void)parse_flags(1, argv);
    try {
      const AlignedBuffer buffer(std::size_t{1} << 56);
    } catch (const std::bad_alloc&) {
      _exit(100);  // what was half done is not to go on
    }
  };
  EXPECT_EXIT(run_out(), ::testing::ExitedWithCode(kExitFailed), ": no memory can be had");
}

// Two threads that find none at once would else be read as one line of both.
TEST(ParseFlagsDeathTest, AProgramWithoutMemorySaysSoByOneCall) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const auto run_out = [&ends] {
    std::string name = "test";
    char* argv[] = {name.data(), nullptr};
    (void)parse_flags(1, argv);
    (void)dup2(ends[1], STDERR_FILENO);
    []() noexcept { find_no_memory(); }();
  };
  EXPECT_EXIT(run_out(), ::testing::ExitedWithCode(kExitFailed), "");
  std::array<char, 512> text{};
  const ssize_t length = recv(ends[0], text.data(), text.size(), MSG_DONTWAIT);
  ASSERT_GT(length, 0);
  const std::string_view line(text.data(), static_cast<std::size_t>(length));
  EXPECT_NE(line.find(": no memory can be had"), line.npos) << line;
  EXPECT_TRUE(line.ends_with(")\n")) << line;
  for (const int fd : ends) close(fd);
}

TEST(ParseFlagsDeathTest, AProgramWithoutDescriptorsSaysSoAndEndsAsItWasSetTo) {
  const auto run_out = [] {
    std::string name = "test";
    char* argv[] = {name.data(), nullptr};
    (void)parse_flags(1, argv);
    set_end_status(3);
    const rlimit none{0, 0};
    (void)setrlimit(RLIMIT_NOFILE, &none);
    []() noexcept { EventLoop loop; }();
  };
  EXPECT_EXIT(run_out(), ::testing::ExitedWithCode(3), ": no more files may be open: raise");
}

TEST(ParseEndpoint, TakesHostAndPort) {
  EXPECT_EQ(parse_endpoint("127.0.0.1:4420")->host, "127.0.0.1");
  EXPECT_EQ(parse_endpoint("127.0.0.1:4420")->port, 4420);
  EXPECT_EQ(parse_endpoint("localhost:0")->port, 0);
  EXPECT_EQ(parse_endpoint("[::1]:65535")->host, "::1");
  EXPECT_EQ(parse_endpoint("[::1]:65535")->port, 65535);
}

TEST(ParseEndpoint, RefusesEverythingElse) {
  for (const char* text : {"", ":", ":4420", "host", "host:", "host:65536", "host:-1", "host:4420x",
                           "::1:4420", "[]:1"}) {
    EXPECT_EQ(parse_endpoint(text).status().code(), Code::invalid_argument) << text;
  }
}

TEST(ParseCpus, TakesNumbersAndRangesInTheirOrder) {
  EXPECT_EQ(*parse_cpus("0"), (std::vector<unsigned>{0}));
  EXPECT_EQ(*parse_cpus("8,0-2,5-5"), (std::vector<unsigned>{8, 0, 1, 2, 5}));
  EXPECT_EQ(parse_cpus("0-255")->size(), 256u);
}

TEST(ParseCpus, RefusesEverythingElse) {
  for (const char* text :
       {"", ",", "x", "1-", "-1", "1-0", "0,0", "0-2,1", "0x1", "1 ", "0-256", "0-255,256", "65536",
        "4294967295", "4294967290-4294967295", "4294967296", "0-4294967295"}) {
    EXPECT_EQ(parse_cpus(text).status().code(), Code::invalid_argument) << text;
  }
}

TEST(ParseKey, TakesTextAndHexadecimal) {
  EXPECT_EQ(*parse_key("k"), Key::from("k"));
  EXPECT_EQ(*parse_key("sixteen-bytes-ok"), Key::from("sixteen-bytes-ok"));
  EXPECT_EQ(*parse_key("0x6b"), Key::from("k"));
  EXPECT_EQ(*parse_key("0x00ff"), Key::from(std::string_view("\0\xff", 2)));
  EXPECT_EQ(*parse_key("0x000102030405060708090a0b0c0d0e0F"),
            Key::from(std::string_view("\0\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17", 16)));
}

TEST(ParseKey, RefusesWrongLengthsAndDigits) {
  for (const char* text : {"", "seventeen-bytes-!", "0x", "0x1", "0xabc", "0xgg", "0x 1", "0x-1",
                           "0x0102030405060708090a0b0c0d0e0f1011"}) {
    EXPECT_EQ(parse_key(text).status().code(), Code::invalid_argument) << text;
  }
}

TEST(FormatKey, IsReadBackAsItself) {
  EXPECT_EQ(format_key(Key::from("plain-text")), "plain-text");
  EXPECT_EQ(format_key(Key::from("a b")), "0x612062");
  EXPECT_EQ(format_key(Key::from("0xab")), "0x30786162");
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char text[] = {'a', static_cast<char>(byte)};
    const Key key = Key::from(std::string_view(text, sizeof text));
    EXPECT_EQ(*parse_key(format_key(key)), key) << byte;
  }
}

TEST(CheckNqn, WantsThePrefixAndALength) {
  EXPECT_TRUE(check_nqn("nqn.2026-11.io.furrow:me").ok());
  EXPECT_TRUE(check_nqn("nqn." + std::string(219, 'x')).ok());
  for (const std::string& nqn : {std::string(), std::string("garbage"), std::string("NQN.2026"),
                                 "nqn." + std::string(220, 'x')}) {
    EXPECT_EQ(check_nqn(nqn).code(), Code::invalid_argument) << nqn;
  }
}

TEST(FlagName, EndsWhereADescriptionBegins) {
  EXPECT_EQ(flag_name("nsid"), "nsid");
  EXPECT_EQ(flag_name("nsid: something: else"), "nsid");
}

TEST(Split, GivesThePieces) {
  EXPECT_EQ(split("", ','), std::vector<std::string>());
  EXPECT_EQ(split("a", ','), std::vector<std::string>{"a"});
  EXPECT_EQ(split("a,b,", ','), (std::vector<std::string>{"a", "b"}));
}

}  // namespace
}  // namespace furrow::tools
