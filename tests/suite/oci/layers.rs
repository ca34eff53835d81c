//! What layers become, as a job sees it.

use std::fs;
use std::thread;

use rstest::rstest;
use serde_json::json;
use tidemill_tests::{Mode, TarEntry, World, skip};

use super::made::{Made, base, hard, in_image, layer};

/// Runs a text for `sh` in an image.
fn shell(world: &World, name: &str, text: &str) -> String {
    let done = world
        .bare_run(in_image(name))
        .args(["--user", "0:0", "--", "/bin/sh", "-c", text])
        .run();
    assert_eq!(done.code, 0, "{done}");
    done.out()
}

/// Trials H1 and H3, and what else goes wrong between layers.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn h1_h3_layers_come_out_as_a_reference_has_them(#[case] mode: Mode) {
    let (Some(world), Some(base)) = (World::new(mode), base()) else {
        return;
    };
    let made = Made::new(vec![
        base,
        layer(&[
            TarEntry::dir("d"),
            TarEntry::file("d/old", "old"),
            TarEntry::dir("gone"),
            TarEntry::file("gone/x", "x"),
            TarEntry::file("a", "a").mode(0o4755).owner(1000, 4343),
            hard("a2", "a"),
            TarEntry::file("kept", "first"),
            hard("kept2", "kept"),
            TarEntry::file("b", "another"),
            TarEntry::file("was-file", ""),
            TarEntry::dir("was-dir"),
            TarEntry::file("was-dir/x", ""),
        ]),
        layer(&[
            TarEntry::dir("d"),
            TarEntry::file("d/new", "new"),
            TarEntry::file("d/.wh..wh..opq", ""),
            TarEntry::file(".wh.gone", ""),
            // A link to what only a lower layer has, with parents that have no entry.
            hard("made/up/a3", "a"),
            // One that takes the place of a file.
            hard("b", "a"),
            // One name changes, the other does not.
            TarEntry::file("kept2", "second"),
            TarEntry::dir("was-file"),
            TarEntry::file("was-dir", "now a file"),
        ]),
    ]);
    made.import(&world, "nasty:1");
    let seen = shell(
        &world,
        "nasty:1",
        "ls -A d; ls -d gone; cat kept kept2; echo; cat a2 made/up/a3 b; echo; \
         stat -c '%n %a %u:%g %F' a was-file was-dir data/of-other; \
         test $(stat -c %i a) = $(stat -c %i made/up/a3) && test a -ef b && echo one file; \
         find / -xdev -name '.wh*'; true",
    );
    let want = "new\nfirstsecond\naaa\n\
                a 4755 1000:4343 regular file\n\
                was-file 755 0:0 directory\n\
                was-dir 644 0:0 regular file\n\
                data/of-other 604 4242:4343 regular file\n\
                one file\n";
    assert_eq!(seen, want, "{seen}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn sixty_layers_are_one_root(#[case] mode: Mode) {
    let (Some(world), Some(base)) = (World::new(mode), base()) else {
        return;
    };
    let mut layers = vec![base];
    for number in 1..60 {
        layers.push(layer(&[
            TarEntry::dir("all"),
            TarEntry::file(&format!("all/{number}"), number.to_string()),
            TarEntry::file("last", number.to_string()),
        ]));
    }
    Made::new(layers).import(&world, "many:1");
    assert_eq!(
        shell(&world, "many:1", "ls /all | wc -l; cat /last"),
        "59\n59"
    );
}

#[test]
fn many_runs_at_once_unpack_an_image_once() {
    let (Some(world), Some(base)) = (World::new(Mode::Rootless), base()) else {
        return;
    };
    let mut made = Made::new(vec![base, layer(&[TarEntry::file("own", "x")])]);
    made.config = json!({ "Cmd": ["/bin/cat", "/own"] });
    made.import(&world, "shared:1");
    thread::scope(|scope| {
        let run = || {
            let done = world.bare_run(in_image("shared:1")).run();
            assert_eq!((done.code, done.out().as_str()), (0, "x"), "{done}");
        };
        for _ in 0..10 {
            scope.spawn(run);
        }
    });
    // The image, and its two layers.
    let trees = fs::read_dir(world.state().join("trees/ready")).unwrap();
    assert_eq!(trees.count(), 3);
}

/// What is unpacked is enough: a job starts though a layer's blob was damaged since.
#[test]
fn an_image_that_was_unpacked_is_not_read_again() {
    let (Some(world), Some(base)) = (World::new(Mode::Rootless), base()) else {
        return;
    };
    let mut made = Made::new(vec![base]);
    made.config = json!({ "Cmd": ["/bin/echo", "here"] });
    made.import(&world, "once:1");
    let run = || world.bare_run(in_image("once:1")).run();
    assert_eq!(run().out(), "here\n");
    let blobs = fs::read_dir(world.state().join("images/blobs/sha256")).unwrap();
    let largest = blobs
        .map(|entry| entry.unwrap())
        .max_by_key(|entry| entry.metadata().unwrap().len());
    // As many bytes, and none of them right.
    let path = largest.unwrap().path();
    let length = fs::metadata(&path).unwrap().len();
    fs::remove_file(&path).unwrap();
    fs::File::create(&path).unwrap().set_len(length).unwrap();
    let done = run();
    assert_eq!((done.code, done.out().as_str()), (0, "here\n"), "{done}");
}

/// After a start of the machine an image's tree is looked at whole by whoever may enter its closed directories, the
/// one of a job that is the caller too.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_file_of_an_image_that_was_cut_is_seen_after_a_boot(#[case] mode: Mode) {
    let (Some(world), Some(base)) = (World::new(mode), base()) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can damage a file among somebody's sub-ids");
        return;
    }
    let closed = [
        TarEntry::dir("closed").mode(0o700).owner(42, 43),
        TarEntry::file("closed/file", "content")
            .mode(0o600)
            .owner(42, 43),
        TarEntry::dir("own").mode(0o700).owner(44, 45),
    ];
    let made = Made::new(vec![base, layer(&closed)]);
    made.import(&world, "looked:1");
    let run = |flags: &[&str], user: &str| {
        let done = world
            .bare_run(["--image", "oci:looked:1", "--user", user])
            .args(flags)
            .args(["--", "/bin/sh", "-c", "cat /closed/file; id -u"])
            .run();
        assert_eq!(done.code, 0, "{done}");
        done.out()
    };
    // The last one has a tree of its own in which 44 is the caller; without root the file is in both.
    let jobs = [
        (&["--no-workspace"][..], "42:43"),
        (&[], "42:43"),
        (&[], "44:45"),
    ];
    let expected = ["content42\n", "content42\n", "44\n"];
    assert_eq!(jobs.map(|(flags, user)| run(flags, user)), expected);
    let trees = world.state().join("trees");
    for tree in fs::read_dir(trees.join("ready")).unwrap() {
        let file = tree.unwrap().path().join("root/closed/file");
        if file.exists() {
            fs::write(file, "cut").unwrap();
        }
    }
    for lock in fs::read_dir(trees.join("locks")).unwrap() {
        let lock = lock.unwrap().path();
        let noted = fs::read_to_string(&lock).unwrap();
        if let Some(at) = noted.split_whitespace().nth(1) {
            let boot = "b0070000-0000-4000-8000-000000000000";
            fs::write(&lock, format!("{boot:<36} {at:>20}\n")).unwrap();
        }
    }
    assert_eq!(jobs.map(|(flags, user)| run(flags, user)), expected);
    let verified = world.call(["cache", "verify", "--format", "json"]);
    assert_eq!(verified.code, 0, "{verified}");
    let mut left = 0;
    for tree in fs::read_dir(trees.join("ready")).unwrap() {
        let file = tree.unwrap().path().join("root/closed/file");
        if file.exists() {
            assert_eq!(fs::read(file).unwrap(), b"content");
            left += 1;
        }
    }
    assert!(left >= 1, "there is a tree with the file");
}
