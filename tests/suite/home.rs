//! A home is no workspace by itself, whatever HOME says.

use std::fs;
use std::path::Path;

use rstest::rstest;
use tidemill_tests::{Mode, World, skip};

/// The home that the user database has for a user.
fn registered_home(uid: u32) -> Option<String> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let is_it = fields.get(2)?.parse() == Ok(uid);
        is_it.then(|| fields.get(5).map(|&home| home.to_owned()))?
    })
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn the_home_of_the_account_is_not_taken_as_the_workspace(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let home = registered_home(world.account().uid);
    let Some(home) = home.filter(|home| home != "/" && Path::new(home).is_dir()) else {
        skip("the account has no home directory");
        return;
    };
    // The world's HOME is another directory.
    assert_ne!(Path::new(&home), world.home());
    let done = world.job("pwd").directory(&home).run();
    assert_eq!((done.code, done.out().as_str()), (0, "/\n"), "{done}");
    let said = format!("`{home}` is not taken as the workspace: it is your home directory");
    assert!(done.err().contains(&said), "{done}");
}
