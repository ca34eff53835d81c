//! Damage is found, told and mended.

use std::fs::{self, File};

use rstest::rstest;
use serde_json::Value;
use tidemill_tests::{Mode, TarEntry, World, skip};

use super::{archive, cache, root_of, run};

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn damage_is_told_by_file_and_tree_and_the_next_job_gets_it_anew(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can damage a file among somebody's sub-ids");
        return;
    }
    let entries = |own: &str| {
        [
            TarEntry::dir("closed").mode(0o700).owner(42, 43),
            TarEntry::file("closed/file", "content")
                .mode(0o600)
                .owner(42, 43),
            TarEntry::file("own", own),
        ]
    };
    let layers = ["one", "two"].map(|name| archive(&world, name, &entries(name)));
    for (layer, own) in layers.iter().zip(["one", "two"]) {
        assert_eq!(run(&world, layer, "cat /taken/own").out(), own);
    }
    let clean = cache(&world, &["verify"]);
    assert_eq!(
        (&clean["whole"], &clean["unread"]),
        (&true.into(), &0.into()),
        "{clean}"
    );
    // The same size and the same time: nothing but reading shows it.
    let file = root_of(&world, "one.tar").join("closed/file");
    let before = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, "CONTENT").unwrap();
    File::open(&file).unwrap().set_modified(before).unwrap();
    let done = world.call(["cache", "verify", "--format", "json"]);
    assert_eq!(done.code, 1, "{done}");
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["whole"], false);
    let findings = report["findings"].as_array().unwrap();
    // Both trees have the file.
    assert_eq!(findings.len(), 2, "{report}");
    for (finding, archive) in findings.iter().zip(["one.tar", "two.tar"]) {
        assert_eq!(finding["path"], "closed/file");
        assert_eq!(finding["what"], "its content is another one");
        let is_of_either = findings
            .iter()
            .any(|finding| finding["from"].as_str().unwrap().ends_with(archive));
        assert!(is_of_either, "{report}");
    }
    let du = cache(&world, &["du"]);
    assert!(du["trees"]["damaged_bytes"].as_u64().unwrap() > 0, "{du}");
    for (layer, own) in layers.iter().zip(["one", "two"]) {
        assert_eq!(run(&world, layer, "cat /taken/own").out(), own);
    }
    let again = root_of(&world, "one.tar").join("closed/file");
    assert_eq!(fs::read(again).unwrap(), b"content");
    assert_eq!(cache(&world, &["verify"])["whole"], true);
    cache(&world, &["prune"]);
    assert_eq!(cache(&world, &["du"])["trees"]["damaged_bytes"], 0);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_wrong_size_is_seen_when_a_job_begins_to_use_the_tree(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can damage a file among somebody's sub-ids");
        return;
    }
    let files: Vec<TarEntry> = (0..20)
        .map(|number| TarEntry::file(&format!("file-{number}"), "content"))
        .collect();
    let layer = archive(&world, "archive", &files);
    run(&world, &layer, "cat /taken/file-0");
    let root = root_of(&world, "archive.tar");
    for number in 0..20 {
        fs::write(root.join(format!("file-{number}")), "").unwrap();
    }
    let read = run(&world, &layer, "cat /taken/file-7");
    assert_eq!(read.out(), "content");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn after_a_crash_of_the_machine_a_tree_is_read_before_it_is_used(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can damage a file among somebody's sub-ids");
        return;
    }
    let closed = TarEntry::dir("closed").mode(0o700).owner(42, 43);
    let file = TarEntry::file("closed/file", "content")
        .mode(0o644)
        .owner(42, 43);
    let open = TarEntry::file("open", "open");
    let layer = archive(&world, "archive", &[closed, file, open]);
    run(&world, &layer, "true");
    for is_damaged in [false, true] {
        let root = root_of(&world, "archive.tar");
        let mark = root.parent().unwrap().join("fresh");
        fs::write(&mark, "the boot before").unwrap();
        if is_damaged {
            let path = root.join("closed/file");
            let before = fs::metadata(&path).unwrap().modified().unwrap();
            fs::write(&path, "zeroes!").unwrap();
            File::open(&path).unwrap().set_modified(before).unwrap();
        }
        let list = cache(&world, &["ls"]);
        let state = &super::tree_of(&list, "archive.tar").unwrap()["state"];
        assert_eq!(state, "unchecked");
        assert_eq!(run(&world, &layer, "cat /taken/open").out(), "open");
        let root = root_of(&world, "archive.tar");
        assert_eq!(fs::read(root.join("closed/file")).unwrap(), b"content");
        // One that was read and is whole needs no other reading.
        let mark = root.parent().unwrap().join("fresh");
        assert_eq!(mark.exists(), is_damaged);
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn one_cut_file_of_thousands_is_seen_at_the_first_use_after_a_boot(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can damage a file among somebody's sub-ids");
        return;
    }
    let path = |number: u32| format!("closed/{}/file-{number:04}", number / 100);
    let mut entries = vec![TarEntry::dir("closed").mode(0o700).owner(42, 43)];
    entries.extend((0..30).map(|number| TarEntry::dir(&format!("closed/{number}"))));
    entries.extend((0..3000).map(|number| TarEntry::file(&path(number), "content").owner(42, 43)));
    entries.push(TarEntry::file("open", "open"));
    let layer = archive(&world, "archive", &entries);
    run(&world, &layer, "true");
    let root = root_of(&world, "archive.tar");
    let tree = root.parent().unwrap().file_name().unwrap().to_owned();
    let lock = world.state().join("trees/locks").join(tree);
    let cut = root.join(path(1500));
    // A cut file; and, as a disk may leave it, one with the right size and time of the wrong kind.
    for damage in [
        (|cut| fs::write(cut, "con").unwrap()) as fn(&std::path::Path),
        |cut| {
            fs::remove_file(cut).unwrap();
            std::os::unix::fs::symlink("content", cut).unwrap();
        },
    ] {
        damage(&cut);
        // What the lock file says of the boot before.
        let noted = fs::read_to_string(&lock).unwrap();
        let at = noted.split_whitespace().nth(1).unwrap();
        let other = format!("{:<36} {at:>20}\n", "b0070000-0000-4000-8000-000000000000");
        fs::write(&lock, other).unwrap();
        assert_eq!(run(&world, &layer, "cat /taken/open").out(), "open");
        assert_eq!(fs::read(&cut).unwrap(), b"content");
        assert_eq!(cache(&world, &["verify"])["whole"], true);
        // It was put aside, and it is told why.
        let du = cache(&world, &["du"]);
        let damaged = &du["damaged"][0];
        assert!(
            damaged["from"].as_str().unwrap().ends_with("archive.tar"),
            "{du:#}"
        );
        let found = damaged["found"].as_array().unwrap();
        let of_file = format!("{}: it ", path(1500));
        let is_told = |text: &Value| text.as_str().unwrap().starts_with(&of_file);
        assert!(found.iter().any(is_told), "{du:#}");
        let first = found[0].as_str().unwrap();
        let text = String::from_utf8(world.ask(["cache", "du"])).unwrap();
        assert!(text.contains("damaged: ") && text.contains(first), "{text}");
    }
    cache(&world, &["prune"]);
    assert_eq!(cache(&world, &["du"])["damaged"], serde_json::json!([]));
}
