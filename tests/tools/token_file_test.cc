// Establishes what a token's file may be: its owner's alone, of 16 to 256 printable characters in
// its first line, however that ends, and no directory; that no more of it is read; and that a pipe
// will do. How: files in a folder of the test's own.
#include "tools/token_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace furrow::tools {
namespace {

class TokenFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/furrow-token.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~TokenFileTest() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ + "/token"; }
  Result<std::string> read(std::string_view text, mode_t mode = 0600) {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << text;
    EXPECT_EQ(chmod(path().c_str(), mode), 0);
    return read_token(path());
  }

  std::string folder_;
};

TEST_F(TokenFileTest, ItIsTheFirstLine) {
  const std::string shortest(16, 'a'), longest(256, '~');
  for (const std::string& token : {shortest, longest}) {
    for (const char* after : {"", "\n", "\nanother line\n", "\r\n", "\r\nanother line\r\n"}) {
      const auto is = read(token + after);
      ASSERT_TRUE(is.ok()) << is.status().describe();
      EXPECT_EQ(*is, token);
    }
  }
}

TEST_F(TokenFileTest, WhatIsNone) {
  const std::string text[] = {"",
                              "\n0123456789abcdef\n",
                              std::string(15, 'a') + "\n",
                              std::string(257, 'a') + "\n",
                              std::string(1 << 20, 'a'),
                              "0123456789 abcdef\n",
                              "0123456789abcdef\r",
                              "0123456789abcdef\r\r\n",
                              std::string(257, 'a') + "\r\n",
                              "0123456789abcdef\t\n",
                              std::string("0123456789abcdef\0", 17),
                              "0123456789abcdef\x7f",
                              "0123456789abcdef\xc3\xa4"};
  for (const std::string& each : text) {
    const auto is = read(each);
    ASSERT_FALSE(is.ok()) << each.substr(0, 40);
    EXPECT_EQ(is.status().code(), Code::invalid_argument);
    EXPECT_NE(is.status().describe().find("16 to 256"), std::string::npos);
  }
}

TEST_F(TokenFileTest, OthersMayNotEvenReadIt) {
  for (const mode_t mode : {0640, 0604, 0610, 0602, 0660}) {
    const auto is = read("0123456789abcdef", mode);
    ASSERT_FALSE(is.ok()) << mode;
    EXPECT_EQ(is.status().code(), Code::permission);
    EXPECT_NE(is.status().describe().find("chmod 600"), std::string::npos);
  }
  EXPECT_TRUE(read("0123456789abcdef", 0400).ok());
}

TEST_F(TokenFileTest, WhatCannotBeRead) {
  EXPECT_EQ(read_token(folder_ + "/none").status().code(), Code::not_found);
  EXPECT_EQ(read_token(folder_).status().code(), Code::invalid_argument);
  std::ofstream(path()) << "0123456789abcdef";
  EXPECT_EQ(read_token(path() + "/below").status().code(), Code::io_error);
}

// root may read all, so another user tries.
TEST_F(TokenFileTest, ItIsSomebodyElses) {
  std::ofstream(path()) << "0123456789abcdef";
  ASSERT_EQ(chmod(path().c_str(), 0), 0);
  constexpr uid_t kNobody = 65534;
  const bool root = geteuid() == 0;
  ASSERT_TRUE(!root || seteuid(kNobody) == 0);
  const Status status = read_token(path()).status();
  ASSERT_TRUE(!root || seteuid(0) == 0);
  EXPECT_EQ(status.code(), Code::permission);
  EXPECT_NE(status.describe().find("may not read it"), std::string::npos) << status.describe();
}

TEST_F(TokenFileTest, APipeWillDo) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  std::jthread writer([this] { std::ofstream(path()) << "0123456789abcdef\n"; });
  const auto is = read_token(path());
  ASSERT_TRUE(is.ok()) << is.status().describe();
  EXPECT_EQ(*is, "0123456789abcdef");
}

}  // namespace
}  // namespace furrow::tools
