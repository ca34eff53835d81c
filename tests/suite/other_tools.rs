//! People who know other tools write what those take. They are told what is written here, and nobody is told
//! to ask for what would be refused.

use rstest::rstest;
use tidemill_tests::{Mode, World};

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
#[case::nobody(Mode::Nobody)]
fn a_program_that_lacked_roots_rights_learns_how_to_have_them(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(root) = world.busybox_root() else {
        return;
    };
    let image = format!("dir:{}", root.display());
    let said = |user: &[&str], script: &str| {
        let flags = ["--image", &image, "--no-workspace"];
        let done = world.job(script).args(flags).args(user).run();
        assert_eq!(done.code, 100, "{done}");
        done.err()
    };
    let has_sub_ids = world.doctor().has("sub-ids");
    let needs = "sub-ids: `tidemill doctor` says how to get them";
    let apt = said(&[], "exit 100 # what apt-get ends with");
    assert!(
        apt.contains("--user 0 --grant root, and --net host"),
        "{apt}"
    );
    assert_eq!(apt.contains(needs), !has_sub_ids, "{apt}");
    let by_name = said(&["--user", "0"], "exit 100");
    assert!(by_name.contains("--grant root"), "{by_name}");
    assert_eq!(by_name.contains(needs), !has_sub_ids, "{by_name}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_image_in_the_place_of_the_program_is_told_where_it_goes(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world.bare_run(["debian:12", "id"]).run();
    assert_eq!(done.code, 127, "{done}");
    assert!(
        done.err().contains("did you mean --image oci:debian:12?"),
        "{done}"
    );
    let done = world.bare_run(["debiann", "id"]).run();
    assert_eq!(done.code, 127, "{done}");
    assert!(!done.err().contains("oci:"), "{done}");
}
