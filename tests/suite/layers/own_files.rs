//! What a layer has of the job's own user is the job's own, whether the job works on files of the caller or has
//! nothing of his.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;

use rstest::rstest;
use tidemill_tests::{Mode, TarEntry, World, busybox_tar, skip, write_tar};

/// A world in which files can have several owners.
fn world_with_owners(mode: Mode) -> Option<World> {
    let world = World::new(mode)?;
    if mode == Mode::Root || world.doctor().has("sub-ids") {
        return Some(world);
    }
    skip("the test user has no sub-ids");
    None
}

/// An archive with what only its owner may read, of 7, and a file of 8.
fn two_owners(world: &World) {
    let archive = world.write("two.tar", "");
    let entries = [
        TarEntry::dir("of-7").mode(0o700).owner(7, 7),
        TarEntry::file("of-7/s", "seven\n").mode(0o600).owner(7, 7),
        TarEntry::file("of-8", "eight\n").mode(0o604).owner(8, 8),
    ];
    write_tar(File::create(archive).unwrap(), &entries);
}

/// Runs a script with a layer as user 7, in a workspace, with something bound, and without both.
fn see(world: &World, layer: &str, script: &str, expected: &str) {
    let given = world.write("given/file", "");
    let bind = format!("bind:{}:/given", given.parent().unwrap().display());
    for flags in [
        &[][..],
        &["--no-workspace"],
        &["--no-workspace", "--grant", &bind],
    ] {
        let job = world.job(script).args(["--user", "7:7", "--layer", layer]);
        let done = job.args(flags).run();
        let seen = (done.code, done.out());
        assert_eq!(
            seen,
            (0, expected.to_owned()),
            "{layer} with {flags:?}: {done}"
        );
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_archives_files_of_the_jobs_user_are_its_own(#[case] mode: Mode) {
    let Some(world) = world_with_owners(mode) else {
        return;
    };
    two_owners(&world);
    see(
        &world,
        "tar:two.tar=/t",
        "cd /t; stat -c '%n %u:%g %a' of-7 of-7/s of-8; cat of-7/s of-8",
        "of-7 7:7 700\nof-7/s 7:7 600\nof-8 8:8 604\nseven\neight\n",
    );
    let shown = "cd /t; stat -c '%n %u:%g %a' s; cat s";
    let layer = "tar,strip=of-7,owner=7,mode=0600:two.tar=/t";
    see(&world, layer, shown, "s 7:7 600\nseven\n");
    let verified = world.call(["cache", "verify", "--format", "json"]);
    assert_eq!(verified.code, 0, "{verified}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn copies_that_are_given_to_the_jobs_user_are_its_own(#[case] mode: Mode) {
    let Some(world) = world_with_owners(mode) else {
        return;
    };
    world.write("d/s", "copied\n");
    let shown = "stat -c '%n %u:%g %a' /t/s; cat /t/s";
    for layer in [
        "dir,owner=7,mode=0600:d=/t",
        "file,owner=7,mode=0600:d/s=/t/s",
        "glob,owner=7,mode=0600,strip=d:d/*=/t",
    ] {
        see(&world, layer, shown, "/t/s 7:7 600\ncopied\n");
    }
    let made = "command,owner=7,mode=0600:mkdir t; echo copied > t/s";
    see(&world, made, shown, "/t/s 7:7 600\ncopied\n");
    let libraries = "shared-libs,owner=7,mode=normal:/bin/sh=/t";
    let shown = "find /t -name 'libc.*' -type f -exec stat -L -c '%u:%g %a' {} + | sort -u; \
                 find /t -name 'libc.*' -type f -exec cat {} + > /tmp/libc && test -s /tmp/libc && echo read";
    see(&world, libraries, shown, "7:7 755\nread\n");
    // An empty file is made by the caller, who is the job in a workspace.
    let script = "stat -c '%n %u:%g %a' /t/s; test -r /t/s && echo read";
    let stub = ["--layer", "stubs,owner=7,mode=0600:/t/s"];
    let done = world.job(script).args(["--user", "7:7"]).args(stub).run();
    let expected = "/t/s 7:7 600\nread\n";
    assert_eq!((done.code, done.out().as_str()), (0, expected), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_canonical_layer_belongs_to_a_job_that_is_root(#[case] mode: Mode) {
    let Some(world) = world_with_owners(mode) else {
        return;
    };
    world.write("d/s", "root's\n");
    for (layer, bits) in [
        ("dir,canonical:d=/t", 644),
        ("dir,owner=0,mode=0600:d=/t", 600),
    ] {
        for grant in [&[][..], &["--grant", "root"]] {
            let script = "stat -c '%n %u:%g %a' /t/s; cat /t/s";
            let job = world
                .job(script)
                .args(["--user", "0:0", "--layer", layer])
                .args(grant);
            let done = job.run();
            let expected = format!("/t/s 0:0 {bits}\nroot's\n");
            assert_eq!((done.code, done.out()), (0, expected), "{layer}: {done}");
        }
    }
}

/// The archive of a root with an administrator's closed home, and something more in it.
fn root_archive(world: &World, name: &str, more: &str) -> bool {
    let mut bytes = Vec::new();
    if let Err(why) = busybox_tar(&mut bytes) {
        skip(&why);
        return false;
    }
    // Without the blocks at its end, so that more can follow.
    bytes.truncate(bytes.len() - 1024);
    let entries = [
        TarEntry::dir("root").mode(0o700).owner(0, 0),
        TarEntry::file(&format!("root/{more}"), more)
            .mode(0o600)
            .owner(0, 0),
        TarEntry::dir("srv/app").mode(0o700).owner(1000, 1000),
        TarEntry::file(&format!("srv/app/{more}"), more)
            .mode(0o600)
            .owner(1000, 1000),
    ];
    write_tar(&mut bytes, &entries);
    world.write(name, bytes);
    true
}

/// A layer over the whole root, on an image and on nothing; and a user that only the image's database knows.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_layer_over_the_whole_root_is_as_an_image_is(#[case] mode: Mode) {
    let Some(world) = world_with_owners(mode) else {
        return;
    };
    if !root_archive(&world, "lower.tar", "lower") || !root_archive(&world, "upper.tar", "upper") {
        return;
    }
    let run = |image: &str, user: &str, layers: &[&str], script: &str| {
        let layers = layers.iter().flat_map(|layer| ["--layer", *layer]);
        let job = world
            .bare_run(["--image", image, "--user", user])
            .args(layers);
        let done = job.args(["--", "/bin/sh", "-c", script]).run();
        assert_eq!(done.code, 0, "{image} {user}: {done}");
        done.out()
    };
    let owners = "cd /root; stat -c '%n %u:%g %a' . *; cat *; echo new > new && cat new";
    let both = ". 0:0 700\nlower 0:0 600\nupper 0:0 600\nloweruppernew\n";
    let upper = &["tar:upper.tar=/"];
    assert_eq!(run("tar:lower.tar", "0:0", upper, owners), both);
    let layers = &["tar:lower.tar=/", "tar:upper.tar=/"];
    assert_eq!(run("none", "0:0", layers, owners), both);
    // Elsewhere, the name is that of the image's database, and of the first whole root's.
    two_owners(&world);
    let layers = &["tar,owner=1000,mode=0600:two.tar=/t"];
    let named = "id -u; cd /t; stat -c %u of-8; cat of-8; cat /srv/app/lower";
    let expected = "1000\n1000\neight\nlower";
    assert_eq!(run("tar:lower.tar", "app", layers, named), expected);
    let layers = &["tar:lower.tar=/", layers[0]];
    assert_eq!(run("none", "app", layers, named), expected);
    let explained = world.call([
        "explain",
        "--image",
        "none",
        "--user",
        "app",
        "--layer",
        "tar:lower.tar=/",
        "--",
        "/bin/id",
    ]);
    assert_eq!(explained.code, 0, "{explained}");
}

/// A directory of the image that a layer is laid over stays whose it is.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_layer_over_a_directory_of_roots_does_not_give_it_away(#[case] mode: Mode) {
    let Some(world) = world_with_owners(mode) else {
        return;
    };
    if !root_archive(&world, "lower.tar", "lower") {
        return;
    }
    two_owners(&world);
    world.write("d/s", "of the caller\n");
    let layers = ["--layer", "tar:two.tar=/srv", "--layer", "dir:d=/srv/app"];
    let script = "stat -c '%n %u:%g' /etc /srv /srv/app /srv/of-8 /srv/app/s; touch /srv/x || echo closed; \
                  cat /srv/app/s /srv/app/lower; touch /srv/app/x && echo open";
    for flags in [&[][..], &["--no-workspace"]] {
        let job = world.bare_run(["--image", "tar:lower.tar", "--user", "app"]);
        let job = job.args(layers).args(flags);
        let done = job.args(["--", "/bin/sh", "-c", script]).run();
        let expected = "/etc 0:0\n/srv 0:0\n/srv/app 1000:1000\n/srv/of-8 8:8\n/srv/app/s 1000:1000\nclosed\n\
                        of the caller\nloweropen\n";
        assert_eq!(
            (done.code, done.out().as_str()),
            (0, expected),
            "{flags:?} {done}"
        );
    }
}

/// The same where all layers lie over directories that are there, and the job has no workspace.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_layer_over_a_directory_of_the_host_is_the_jobs_own_too(#[case] mode: Mode) {
    let Some(world) = world_with_owners(mode) else {
        return;
    };
    two_owners(&world);
    let secret = world.write("d/secret", "mine\n");
    fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
    let over = [
        "--layer",
        "dir:d=/usr/share",
        "--layer",
        "tar:two.tar=/usr/lib",
    ];
    let script =
        "cd /usr; stat -c '%n %u:%g' share/secret lib/of-7/s lib/of-8; cat share/secret lib/of-7/s";
    for flags in [&[][..], &["--no-workspace"]] {
        let job = world.job(script).args(["--user", "7:7"]).args(over);
        let done = job.args(flags).run();
        let expected = "share/secret 7:7\nlib/of-7/s 7:7\nlib/of-8 8:8\nmine\nseven\n";
        assert_eq!(
            (done.code, done.out().as_str()),
            (0, expected),
            "{flags:?} {done}"
        );
    }
}
