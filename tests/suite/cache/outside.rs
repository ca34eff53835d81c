//! Trial E4: archives that would write outside of their tree.

use std::fs;
use std::io::Write;

use rstest::rstest;
use tar::EntryType;
use tidemill_tests::{Mode, TarEntry, World};

use super::{archive, assert_nothing_half, cache, run};

/// An archive with one entry of a name that no tool writes.
fn raw(world: &World, archive: &str, name: &str, kind: EntryType, target: &str) -> String {
    let mut header = tar::Header::new_gnu();
    let old = header.as_old_mut();
    old.name[..name.len()].copy_from_slice(name.as_bytes());
    old.linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header.set_entry_type(kind);
    header.set_cksum();
    let mut bytes = Vec::new();
    bytes.write_all(header.as_bytes()).unwrap();
    bytes.write_all(&[0; 1024]).unwrap();
    let path = world.write(format!("{archive}.tar"), bytes);
    format!("tar:{}=/taken", path.display())
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn e4_an_archive_that_leads_out_is_refused_by_its_entry(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let file = EntryType::Regular;
    let cases = [
        (
            "up",
            "../x",
            file,
            "",
            "the entry `../x`",
            "has `..` in its name",
        ),
        (
            "deep",
            "d/../../x",
            file,
            "",
            "the entry `d/../../x`",
            "has `..` in its name",
        ),
        (
            "absolute",
            "/abs",
            file,
            "",
            "the entry `/abs`",
            "has an absolute name",
        ),
        (
            "hard",
            "h",
            EntryType::Link,
            "/etc/passwd",
            "the entry `h`",
            "is a hard link to `/etc/passwd`",
        ),
        (
            "hard-up",
            "h",
            EntryType::Link,
            "../../etc/passwd",
            "the entry `h`",
            "is a hard link to `../../etc/passwd`",
        ),
    ];
    let good = archive(&world, "good", &[TarEntry::file("file", "content")]);
    run(&world, &good, "true");
    let before = cache(&world, &["ls"]);
    for (name, entry, kind, target, named, why) in cases {
        let layer = raw(&world, name, entry, kind, target);
        let done = world
            .job("true")
            .args(["--layer", &layer, "--no-workspace"])
            .run();
        assert_eq!(done.code, 125, "{name}: {done}");
        for said in [named, why, &format!("{name}.tar"), "hint:"] {
            assert!(done.err().contains(said), "{name}: no {said}: {done}");
        }
    }
    assert_eq!(cache(&world, &["ls"])["trees"], before["trees"]);
    assert_nothing_half(&world);
}

/// A link to a directory is followed as by a program whose root the tree is, as layers of images need it; of
/// several entries for one name the last counts, as for `tar -r`; and dots in a name are a name.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn e4_what_stays_inside_is_taken(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let outside = world.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let target = outside.to_str().unwrap();
    let inside = format!("/taken{target}/x");
    let layer = archive(
        &world,
        "inside",
        &[
            TarEntry::symlink("a", target),
            TarEntry::file("a/x", "through a link"),
            TarEntry::file("twice", "first"),
            TarEntry::file("twice", "second"),
            TarEntry::file("foo..bar", "dots"),
            TarEntry::file("..hidden", "hidden"),
        ],
    );
    let line = format!("cd /taken && cat twice foo..bar ..hidden {inside}");
    let done = run(&world, &layer, &line);
    assert_eq!(done.out(), "seconddotshiddenthrough a link");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}
