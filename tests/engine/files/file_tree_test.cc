// Establishes how names lead to files (FileTree): paths and what is wrong with them, several names
// of one file, which of two has a name, names that go, that links which go round in a circle,
// as a damaged medium may say, end, and that a deep tree goes. How: nodes without contents.
#include "engine/files/file_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace furrow::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using NodePtr = FileTree::NodePtr;

class FileTreeTest : public ::testing::Test {
 protected:
  FileTreeTest() { tree_.set_root(make(1, true)); }
  static NodePtr make(std::uint64_t inode, bool directory) {
    auto node = std::make_shared<FileNode>();
    node->inode = inode;
    node->directory = directory;
    return node;
  }
  // A new node, with that name.
  NodePtr add(const NodePtr& parent, const std::string& name, bool directory = false) {
    const NodePtr node = make(++inodes_, directory);
    tree_.add(node);
    link(parent, node, name, 1);
    return node;
  }
  NodePtr link(const NodePtr& parent, const NodePtr& node, const std::string& name,
               std::uint64_t sequence) {
    return tree_.add_link(parent, node, {parent->inode, sequence, name});
  }
  NodePtr at(std::string_view path) const {
    const auto place = tree_.find(path);
    return place.ok() ? place->node : nullptr;
  }
  const NodePtr& root() const { return tree_.root(); }

  FileTree tree_;
  std::uint64_t inodes_ = 1;
};

TEST_F(FileTreeTest, PathsAreNamesWithDotsResolved) {
  EXPECT_THAT(FileTree::split("/a/b"), ElementsAre("a", "b"));
  EXPECT_THAT(FileTree::split("a//b/./c/"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(FileTree::split("/a/../b/c/.."), ElementsAre("b"));
  EXPECT_THAT(FileTree::split("/../..//"), IsEmpty()) << "above the root is the root";
  EXPECT_THAT(FileTree::split(""), IsEmpty());
  EXPECT_THAT(FileTree::split("/.../..a"), ElementsAre("...", "..a"));
}

TEST_F(FileTreeTest, FindTellsWhereANameIsOrWouldBe) {
  const NodePtr folder = add(root(), "folder", true), file = add(folder, "file");
  const auto there = tree_.find("/folder/file");
  ASSERT_TRUE(there.ok());
  EXPECT_EQ(there->parent, folder);
  EXPECT_EQ(there->name, "file");
  EXPECT_EQ(there->node, file);
  const auto not_yet = tree_.find("/folder/new");
  ASSERT_TRUE(not_yet.ok());
  EXPECT_EQ(not_yet->parent, folder);
  EXPECT_EQ(not_yet->name, "new");
  EXPECT_EQ(not_yet->node, nullptr);
  const auto of_root = tree_.find("/");
  ASSERT_TRUE(of_root.ok());
  EXPECT_EQ(of_root->parent, nullptr);
  EXPECT_EQ(of_root->node, root());
  EXPECT_EQ(at("/folder/../folder"), folder);
}

TEST_F(FileTreeTest, WhatIsWrongWithAPath) {
  add(root(), "file");
  EXPECT_EQ(tree_.find("/none/file").status().code(), Code::not_found);
  EXPECT_EQ(tree_.find("/file/in").status().code(), Code::invalid_argument);
  EXPECT_TRUE(tree_.find(std::string(kFileNameMax, 'x')).ok());
  EXPECT_EQ(tree_.find(std::string(kFileNameMax + 1, 'x')).status().code(), Code::invalid_argument);
}

TEST_F(FileTreeTest, AFileMayHaveSeveralNames) {
  const NodePtr folder = add(root(), "folder", true), file = add(root(), "one");
  EXPECT_EQ(link(folder, file, "two", 2), nullptr) << "nobody lost a name";
  EXPECT_EQ(at("/one"), file);
  EXPECT_EQ(at("/folder/two"), file);
  EXPECT_EQ(file->links.size(), 2u);
  EXPECT_EQ(tree_.path_of(*file), "/one");
  tree_.remove_link(*root(), file, "one");
  EXPECT_EQ(at("/one"), nullptr);
  EXPECT_EQ(at("/folder/two"), file);
  EXPECT_EQ(tree_.path_of(*file), "/folder/two");
  EXPECT_EQ(tree_.by_inode(file->inode), file);
  tree_.erase(*file);
  EXPECT_EQ(tree_.by_inode(file->inode), nullptr);
}

// In whatever order records are read.
TEST_F(FileTreeTest, OfTwoWithOneNameTheLaterLinkHasIt) {
  const NodePtr older = make(10, false), newer = make(11, false);
  link(root(), older, "elsewhere", 1);
  EXPECT_EQ(link(root(), older, "name", 5), nullptr);
  EXPECT_EQ(link(root(), newer, "name", 6), older) << "it lost the name";
  EXPECT_EQ(at("/name"), newer);
  EXPECT_EQ(older->links.size(), 1u) << "and keeps its other one";
  EXPECT_EQ(at("/elsewhere"), older);
  const NodePtr oldest = make(12, false);
  EXPECT_EQ(link(root(), oldest, "name", 4), oldest) << "it does not get the name";
  EXPECT_EQ(at("/name"), newer);
  EXPECT_TRUE(oldest->links.empty());
}

TEST_F(FileTreeTest, ANameThatAnotherHasByNowIsNotTaken) {
  const NodePtr file = add(root(), "name"), other = make(20, false);
  link(root(), other, "name", 2);
  tree_.remove_link(*root(), file, "name");
  EXPECT_EQ(at("/name"), other);
}

TEST_F(FileTreeTest, WithinIsTheFolderAndAllBelow) {
  const NodePtr outer = add(root(), "outer", true), inner = add(outer, "inner", true);
  const NodePtr file = add(inner, "file"), beside = add(root(), "beside", true);
  for (const NodePtr& below : {outer, inner, file}) EXPECT_TRUE(tree_.is_within(*outer, *below));
  EXPECT_TRUE(tree_.is_within(*root(), *file));
  EXPECT_FALSE(tree_.is_within(*inner, *outer));
  EXPECT_FALSE(tree_.is_within(*beside, *file));
  EXPECT_EQ(tree_.path_of(*file), "/outer/inner/file");
  EXPECT_EQ(tree_.path_of(*root()), "/");
}

TEST_F(FileTreeTest, ACircleEnds) {
  const NodePtr one = add(root(), "one", true), two = add(one, "two", true);
  one->links = {{two->inode, 3, "one"}};
  EXPECT_FALSE(tree_.is_within(*root(), *two));
  EXPECT_FALSE(tree_.path_of(*two).empty());
  one->links = {{99, 3, "one"}};  // of a folder that there is not
  EXPECT_FALSE(tree_.is_within(*root(), *two));
  EXPECT_EQ(tree_.path_of(*two), "/one/two");
}

// Deeper than the stack is.
TEST_F(FileTreeTest, ADeepOneGoes) {
  NodePtr at = root();
  for (unsigned i = 0; i < 200'000; ++i) at = add(at, "d", true);
}

}  // namespace
}  // namespace furrow::testing
