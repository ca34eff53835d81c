//! git, with a repository, a hook and two clones.

use rstest::rstest;
use tidemill_tests::Mode;

use super::{assert_works, world_with};

const WORK: &str = r#"
set -e
export GIT_AUTHOR_NAME=Me GIT_AUTHOR_EMAIL=me@example.org
export GIT_COMMITTER_NAME=Me GIT_COMMITTER_EMAIL=me@example.org
git init -q project
cd project
printf '#!/bin/sh\necho hook ran >&2\n' > .git/hooks/post-commit
chmod +x .git/hooks/post-commit
echo one > file
git add file
git commit -q -m 'first' 2>&1
git branch -M main
git switch -q -c other
echo two > file
git commit -q -a -m 'second' 2>/dev/null
git switch -q main
git merge -q other
git worktree add -q ../beside other~1 2>/dev/null
cat ../beside/file
git gc -q
git fsck --no-progress
cd ..
git clone -q project linked
git clone -q "file://$PWD/project" copied
git -C linked log --format=%s
cd copied
echo three > file
git commit -q -a -m 'third'
git push -q origin main:third
git -C ../project log --format=%s -1 third
"#;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn git_commits_merges_clones_and_pushes(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["git"]) else {
        return;
    };
    let expected = "hook ran\none\nsecond\nfirst\nthird\n";
    assert_works(world.job(WORK), expected);
}
