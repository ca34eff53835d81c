//! Where programs are found: what PATH and the variables of tools lead to is there inside too.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rstest::rstest;
use tidemill_tests::{Mode, World};

use super::assert_works;

/// Scripts write `PATH=$PWD/../tools/bin:$PATH`. Such a name begins like one of the workspace.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_place_that_is_named_with_dots_is_found(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for (directory, text) in [("../tools/bin", "beside"), ("deep/bin", "below")] {
        let program = world.write(
            format!("{directory}/say-{text}"),
            format!("#!/bin/sh\necho {text}\n"),
        );
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    world.write("../jdk/lib/modules", "library\n");
    world.write("../jdk/bin/java", "program\n");
    let work = world.work();
    let work = work.to_str().unwrap();
    let path = format!("{work}/../tools/bin:{work}/deep/../deep/bin:/usr/bin:/bin");
    let trial = world
        .job("say-beside; say-below; cat $JAVA_HOME/bin/java")
        .variable("PATH", path)
        .variable("JAVA_HOME", format!("{work}/../jdk"));
    assert_works(trial, "beside\nbelow\nprogram\n");
}
