//! Files that several trees have are there once.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rstest::rstest;
use tidemill_tests::{Mode, TarEntry, World};

use super::{archive, assert_nothing_half, cache, root_of, run, tree_of};

/// Bytes of the file that both have.
const BIG: usize = 3 << 20;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
#[case::nobody(Mode::Nobody)]
fn a_file_of_two_archives_is_stored_once_and_no_job_changes_it(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let big = || {
        TarEntry::file("big", vec![b'x'; BIG])
            .mode(0o666)
            .owner(7, 8)
    };
    let entries = |own: &str| {
        [
            big(),
            TarEntry::file("own", own),
            TarEntry::file("again", own),
        ]
    };
    let layers = ["one", "two"].map(|name| archive(&world, name, &entries(name)));
    run(&world, &layers[0], "cat /taken/own");
    let alone = cache(&world, &["du"])["trees"]["bytes"].as_u64().unwrap();
    assert!(alone >= BIG as u64, "{alone}");
    run(&world, &layers[1], "cat /taken/own");
    let both = cache(&world, &["du"])["trees"]["bytes"].as_u64().unwrap();
    assert!(both - alone < 200_000, "{alone}, then {both}");
    let list = cache(&world, &["ls"]);
    let two = tree_of(&list, "two.tar").unwrap();
    assert!(two["disk_bytes"].as_u64().unwrap() >= BIG as u64, "{two}");
    assert!(two["alone_bytes"].as_u64().unwrap() < 200_000, "{two}");
    assert_eq!(
        (&two["state"], &two["in_use"]),
        (&"ready".into(), &false.into())
    );
    if Mode::suite_is_root() {
        let roots = ["one.tar", "two.tar"].map(|name| root_of(&world, name));
        let inode = |path: &str| fs::metadata(roots[0].join(path)).unwrap().ino();
        let other = |path: &str| fs::metadata(roots[1].join(path)).unwrap().ino();
        assert_eq!(inode("big"), other("big"));
        assert_ne!(
            inode("own"),
            inode("again"),
            "two files of one tree stay two"
        );
    }
    // Whatever a job tries, and wherever the layer lies, the others have it as it was.
    let line = "for file in /taken/big /big; do
        { echo changed > $file; chmod 600 $file; touch -d @1 $file; truncate -s 1 $file; rm -f $file; } 2>&1
    done; true";
    for layer in [&layers[0], &layers[0].replace("=/taken", "=/")] {
        run(&world, layer, line);
    }
    for layer in &layers {
        let size = run(&world, layer, "wc -c < /taken/big");
        assert_eq!(size.out().trim(), BIG.to_string());
    }
    let verified = cache(&world, &["verify"]);
    assert_eq!(verified["whole"], true, "{verified}");
    assert_nothing_half(&world);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn equal_archives_in_other_packing_are_one_tree(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let entries = [
        TarEntry::dir("d").mode(0o755),
        TarEntry::file("d/a", "a"),
        TarEntry::file("d/b", "b"),
    ];
    let plain = archive(&world, "plain", &entries);
    let mut turned = entries.clone();
    turned.swap(1, 2);
    let turned = archive(&world, "turned", &turned);
    for layer in [&plain, &turned] {
        assert_eq!(run(&world, layer, "cat /taken/d/a").out(), "a");
    }
    let list = cache(&world, &["ls"]);
    let trees = list["trees"].as_array().unwrap();
    let names: Vec<usize> = trees
        .iter()
        .filter(|tree| tree["from"].as_str().unwrap().ends_with(".tar"))
        .map(|tree| tree["names"].as_array().unwrap().len())
        .collect();
    assert_eq!(names, [2], "{list}");
}
