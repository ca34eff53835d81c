//! An image whose files are one layer among others.

use std::fs;

use rstest::rstest;
use serde_json::{Value, json};
use tidemill_tests::{Mode, TarEntry, World};

use super::fake::Fake;
use super::made::{Made, base, layer};

/// An image with two layers, the second of which takes something away.
fn tools() -> Made {
    let first = [
        TarEntry::dir("usr"),
        TarEntry::dir("usr/share"),
        TarEntry::file("usr/share/tool", "a tool\n"),
        TarEntry::file("usr/share/gone", "old\n"),
        TarEntry::file("top", "top\n"),
    ];
    let second = [TarEntry::file("usr/share/.wh.gone", "")];
    let mut made = Made::new(vec![layer(&first), layer(&second)]);
    made.config = json!({ "Env": ["OF_THE_LAYER=1"], "Cmd": ["/nothing"], "WorkingDir": "/usr" });
    made
}

/// The trees and the spec of a job, as `explain` has them.
fn explained(world: &World, arguments: &[&str]) -> Value {
    let line = [&["explain", "--format", "json"], arguments].concat();
    serde_json::from_slice(&world.ask(line)).unwrap()
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
#[case::nobody(Mode::Nobody)]
fn its_files_are_laid_over_what_is_below(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let digest = tools().import(&world, "tools:1");
    world.write("below/usr/share/gone", "below\n");
    let see = "cat /t/usr/share/*; cat /t/top; echo $OF_THE_LAYER; pwd";
    // Over a directory, on the command line.
    let layers = ["--layer", "dir:below=/t", "--layer", "oci:tools:1=/t"];
    let done = world.job(see).args(["--no-workspace"]).args(layers).run();
    let expected = "below\na tool\ntop\n\n/\n";
    assert_eq!((done.code, done.out().as_str()), (0, expected), "{done}");
    // In a job file, as text and as an object.
    for layer in [
        json!("oci:tools:1=/t"),
        json!({ "kind": "oci", "reference": "tools:1", "dest": "/t" }),
    ] {
        let job = json!({
            "program": "sh", "args": ["-c", see], "no_workspace": true,
            "layers": ["dir:below=/t", layer]
        });
        world.write("job.json", job.to_string());
        let done = world.bare_run(["--file", "job.json"]).run();
        assert_eq!((done.code, done.out().as_str()), (0, expected), "{done}");
    }
    // A part of it, canonical, is the tree that the same files are in a directory.
    world.write("same/tool", "a tool\n");
    let arguments = [
        "--layer",
        "oci,strip=usr/share,canonical:tools:1=/s",
        "--layer",
        "dir,canonical:same=/d",
        "--no-workspace",
        "--",
        "sh",
        "-c",
        "stat -c '%n %a %Y' /s/tool /d/tool; ls /s",
    ];
    let done = world.bare_run(arguments).run();
    let expected = "/s/tool 644 1\n/d/tool 644 1\ntool\n";
    assert_eq!((done.code, done.out().as_str()), (0, expected), "{done}");
    let answer = explained(&world, &arguments);
    let tree = |index: usize| answer["layers"][index]["tree"].as_str().unwrap();
    assert!(tree(0).starts_with("b3:"), "{answer}");
    assert_eq!(tree(0), tree(1), "{answer}");
    // What it was resolved to is part of the job.
    assert_eq!(
        answer["spec"]["layers"][0]["digest"],
        json!(digest),
        "{answer}"
    );
    let text = world.ask([&["explain"], &arguments[..]].concat());
    let text = String::from_utf8(text).unwrap();
    let line = format!("is {digest} below usr/share at /s, canonical");
    assert!(text.contains(&line), "no {line}: {text}");
}

#[test]
fn a_lock_file_holds_it_as_it_holds_an_image() {
    let Some(world) = World::new(Mode::Rootless) else {
        return;
    };
    let old = tools().import(&world, "tools:1");
    let mut newer = tools();
    newer
        .layers
        .push(layer(&[TarEntry::file("top", "newer\n")]));
    let images = json!({ "docker.io/library/tools:1": old });
    let lock = json!({ "version": 1, "images": images }).to_string();
    let run = |flags: &[&str]| {
        let trial = world.job("cat /t/top").args(["--layer", "oci:tools:1=/t"]);
        trial.args(flags).run()
    };
    let done = run(&["--locked"]);
    assert_eq!(done.code, 2, "{done}");
    assert!(done.err().contains("image pull --lock tools:1"), "{done}");
    newer.import(&world, "tools:1");
    assert_eq!(run(&[]).out(), "newer\n");
    world.write("tidemill.lock", &lock);
    assert_eq!(run(&["--locked"]).out(), "top\n");
    assert_eq!(run(&[]).out(), "top\n");
    assert_eq!(
        fs::read_to_string(world.work().join("tidemill.lock")).unwrap(),
        lock
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn it_is_fetched_when_the_job_waits_for_it(#[case] mode: Mode) {
    let (Some(world), Some(base)) = (World::new(mode), base()) else {
        return;
    };
    let mut made = tools();
    made.layers.insert(0, base);
    made.config = json!({ "Cmd": ["/bin/cat", "/t/top", "/c/tool"] });
    let fake = Fake::serve(&world, &made, |_, _| None);
    let name = fake.name();
    // The same image twice over itself, once with other attributes: it is fetched once.
    let whole = format!("oci:{name}=/t");
    let part = format!("oci,canonical,strip=usr/share:{name}=/c");
    let flags = ["--layer", &whole, "--layer", &part];
    let run = || {
        world
            .bare_run(super::made::in_image(&name))
            .args(flags)
            .run()
    };
    let done = run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "top\na tool\n"),
        "{done}"
    );
    let blobs = fake.asked("/blobs/");
    // Three layers and what the image says.
    assert_eq!(blobs, 4);
    let done = run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "top\na tool\n"),
        "{done}"
    );
    assert_eq!(fake.asked("/blobs/"), blobs);
}

#[test]
fn mistakes_name_the_image() {
    let Some(world) = World::new(Mode::Rootless) else {
        return;
    };
    tools().import(&world, "tools:1");
    let run = |layer: &str| {
        world
            .job("true")
            .args(["--no-workspace", "--layer", layer])
            .run()
    };
    for (layer, code, parts) in [
        (
            "oci,strip=no/where:tools:1",
            125,
            ["`tools:1` has no directory `no/where`", "leave `strip` out"],
        ),
        (
            "oci,platform=linux/s390x:tools:1",
            2,
            ["not for linux/s390x", "tools:1"],
        ),
        ("oci:Tools:1", 2, ["upper-case", "--layer oci:Tools:1"]),
        ("oci:./layout", 2, ["is a path", "image import"]),
    ] {
        let done = run(layer);
        assert_eq!(done.code, code, "{done}");
        for part in parts {
            assert!(done.err().contains(part), "no {part}: {done}");
        }
    }
}
