//! What an image that is a layer has of the job's own user.

use rstest::rstest;
use tidemill_tests::{Mode, TarEntry, World, skip};

use super::made::{Made, base, layer};

fn with_secrets(mode: Mode) -> Option<World> {
    let (world, base) = (World::new(mode)?, base()?);
    if mode != Mode::Root && !world.doctor().has("sub-ids") {
        skip("the test user has no sub-ids");
        return None;
    }
    let entries = [
        TarEntry::dir("root").mode(0o700).owner(0, 0),
        TarEntry::file("root/s", "root's\n").mode(0o600).owner(0, 0),
        TarEntry::dir("srv/closed").mode(0o700).owner(0, 0),
        TarEntry::file("srv/closed/shadow", "hidden\n")
            .mode(0o600)
            .owner(0, 0),
        TarEntry::file("srv/others", "of 42\n")
            .mode(0o604)
            .owner(42, 42),
    ];
    Made::new(vec![base, layer(&entries)]).import(&world, "secrets:1");
    Some(world)
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn root_of_the_job_reads_what_the_image_has_of_root(#[case] mode: Mode) {
    let Some(world) = with_secrets(mode) else {
        return;
    };
    for flags in [&[][..], &["--no-workspace"], &["--grant", "root"]] {
        let script = "cd /t; stat -c '%n %u:%g %a' closed closed/shadow others; cat closed/shadow";
        let job =
            world
                .job(script)
                .args(["--user", "0:0", "--layer", "oci,strip=srv:secrets:1=/t"]);
        let done = job.args(flags).run();
        let expected = "closed 0:0 700\nclosed/shadow 0:0 600\nothers 42:42 604\nhidden\n";
        assert_eq!(
            (done.code, done.out().as_str()),
            (0, expected),
            "{flags:?} {done}"
        );
        // As the whole root.
        let script = "cat /root/s /srv/closed/shadow; stat -c %u /srv/others; echo new > /root/new";
        let whole = ["--image", "none", "--layer", "oci:secrets:1=/"];
        let job = world.bare_run(["--user", "0:0"]).args(whole).args(flags);
        let done = job.args(["--", "/bin/sh", "-c", script]).run();
        let expected = "root's\nhidden\n42\n";
        assert_eq!(
            (done.code, done.out().as_str()),
            (0, expected),
            "{flags:?} {done}"
        );
    }
}

/// The same image as the job's image and as a layer, with other owners.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_layer_with_other_owners_belongs_to_a_user_that_the_image_names(#[case] mode: Mode) {
    let Some(world) = with_secrets(mode) else {
        return;
    };
    let layer = "oci,strip=srv/closed,owner=1000,mode=0600:secrets:1=/t";
    let job = world.bare_run([
        "--image",
        "oci:secrets:1",
        "--user",
        "app",
        "--layer",
        layer,
    ]);
    let script = "id -u; stat -c '%n %u %a' /t/shadow /srv/closed; cat /t/shadow";
    let done = job.args(["--", "/bin/sh", "-c", script]).run();
    let expected = "1000\n/t/shadow 1000 600\n/srv/closed 0 700\nhidden\n";
    assert_eq!((done.code, done.out().as_str()), (0, expected), "{done}");
}
