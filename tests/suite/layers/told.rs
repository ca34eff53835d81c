//! What is told of trees: what they were made of, and what they lack.

use std::fs::File;

use rstest::rstest;
use rustix::fs::{CWD, FileType, Mode as Bits, mknodat};
use serde_json::{Value, json};
use tar::EntryType;
use tidemill_tests::{Mode, TarEntry, World, write_tar};

fn listed(world: &World) -> String {
    let list = world.ask(["cache", "ls"]);
    String::from_utf8(list).unwrap()
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_list_of_trees_names_the_kind_and_source_of_each(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    world.write("src/a\nb", "");
    write_tar(
        File::create(world.write("a.tar", "")).unwrap(),
        &[TarEntry::file("x", "x")],
    );
    let layers = json!([
        "dir,canonical:src=/d",
        "glob,canonical:src/*=/g",
        "file,mtime=1:a.tar=/f",
        "tar:a.tar=/t",
        "command:echo made > made",
        "shared-libs:/bin/sh=/l",
        "stubs:/s/{a,b,c,d}",
        "symlinks:target=/link",
        "stubs:/t/more/"
    ]);
    let job = json!({ "program": "true", "no_workspace": true, "layers": layers });
    world.write("job.json", job.to_string());
    let done = world.bare_run(["--file", "job.json"]).run();
    assert_eq!(done.code, 0, "{done}");
    let list = listed(&world);
    let work = world.work();
    let work = work.display();
    for part in [
        format!("dir {work}/src\n"),
        format!("glob {work}/src/*\n"),
        format!("file {work}/a.tar\n"),
        format!("tar {work}/a.tar\n"),
        "command sh -c echo made > made\n".to_owned(),
        "shared-libs of /bin/sh\n".to_owned(),
        " small trees of stubs, links and places to mount on, ".to_owned(),
    ] {
        assert!(list.contains(&part), "no {part:?}: {list}");
    }
    assert!(!list.contains("stubs /"), "{list}");
    let list: Value =
        serde_json::from_slice(&world.ask(["cache", "ls", "--format", "json"])).unwrap();
    let from: Vec<&str> = list["trees"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tree| tree["from"].as_str().unwrap())
        .collect();
    for part in [
        "symlinks /link -> target",
        "stubs /s/a, /s/b, /s/c and 1 more",
        "stubs /t/more/",
    ] {
        assert!(from.contains(&part), "no {part}: {from:?}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_a_tree_lacks_is_told_where_it_is_built_and_where_it_is_listed(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    world.write("src/file", "");
    mknodat(
        CWD,
        world.work().join("src/null"),
        FileType::CharacterDevice,
        Bits::RUSR,
        0,
    )
    .unwrap();
    let device = TarEntry {
        kind: EntryType::Char,
        ..TarEntry::file("null", "")
    };
    let archive = File::create(world.write("a.tar", "")).unwrap();
    write_tar(archive, &[TarEntry::file("x", "x"), device]);
    for (layer, source, lack) in [
        (
            "dir,canonical:src=/d",
            "dir ",
            "1 sockets and devices were left out",
        ),
        ("tar:a.tar=/t", "tar ", "1 device nodes were left out"),
        (
            "tar,canonical:a.tar=/t",
            "tar ",
            "1 device nodes were left out",
        ),
    ] {
        let run = || {
            world
                .job("true")
                .args(["--no-workspace", "--layer", layer])
                .run()
        };
        let done = run();
        assert_eq!(done.code, 0, "{done}");
        assert!(done.record().warnings().contains(&"layer"), "{done}");
        let said = done.err();
        assert!(
            said.contains("warning: ") && said.contains(lack),
            "no {lack}: {said}"
        );
        // Once: whoever uses it later finds it in the list.
        let again = run();
        assert!(!again.record().warnings().contains(&"layer"), "{again}");
        let list = listed(&world);
        let line = list
            .lines()
            .find(|line| line.contains(lack) && line.contains(source));
        assert!(line.is_some_and(|line| line.contains(" lacks: ")), "{list}");
    }
}
