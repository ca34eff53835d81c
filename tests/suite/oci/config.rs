//! What the config of an image says about the program.

use rstest::rstest;
use serde_json::{Value, json};
use tidemill_tests::{Mode, TarEntry, World};

use super::made::{Made, base, in_image, layer};

/// An image of somebody who thought of everything.
fn app() -> Option<Made> {
    let mut made = Made::new(vec![
        base()?,
        layer(&[TarEntry::dir("srv/app/data").owner(1000, 1000)]),
    ]);
    made.config = json!({
        "User": "app", "WorkingDir": "/srv/app/data",
        "Env": ["PATH=/bin:/special", "GREETING=hello there"],
        "Entrypoint": ["/bin/sh", "-c"],
        "Cmd": ["echo $GREETING; id -u; id -g; pwd; echo $PATH; echo $HOME; touch mine"],
    });
    Some(made)
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_image_says_what_runs_where_as_whom_and_with_what(#[case] mode: Mode) {
    let (Some(world), Some(made)) = (World::new(mode), app()) else {
        return;
    };
    let manifest = made.import(&world, "app:1");
    let run = |more: &[&str]| world.bare_run(in_image("app:1")).args(more).run();
    let done = run(&[]);
    assert_eq!(done.code, 0, "{done}");
    let own = "hello there\n1000\n1000\n/srv/app/data\n/bin:/special\n/srv/app\n";
    assert_eq!(done.out(), own, "{done}");
    // The record says everything by itself.
    let record = world.list(&[]).remove(0);
    let command = &world.show(record.id()).0["command"];
    assert_eq!(command[0], "/bin/sh", "{command:#}");
    let flags = in_image("app:1");
    let explained = world.ask(
        ["explain", "--format", "json"]
            .into_iter()
            .chain(flags.each_ref().map(String::as_str)),
    );
    let explained: Value = serde_json::from_slice(&explained).unwrap();
    let spec = &explained["spec"];
    assert_eq!(spec["image"]["digest"], manifest.as_str(), "{spec:#}");
    assert_eq!(spec["workdir"], "/srv/app/data", "{spec:#}");
    // What is said goes before what the image says.
    let done = run(&["--", "echo $0 $1; pwd", "zero", "one"]);
    assert_eq!(done.out(), "zero one\n/srv/app/data\n", "{done}");
    let done = run(&["--entrypoint", "", "--", "/bin/id", "-u"]);
    assert_eq!(done.out(), "1000\n", "{done}");
    let done = run(&["--entrypoint", "/bin/echo", "--", "a", "b"]);
    assert_eq!(done.out(), "a b\n", "{done}");
    let flags = [
        "--user",
        "0:0",
        "--workdir",
        "/data",
        "--env",
        "GREETING=bye",
    ];
    let done = run(&[&flags[..], &["--", "echo $GREETING; id -u; pwd"]].concat());
    assert_eq!(done.out(), "bye\n0\n/data\n", "{done}");
}

/// With a workspace the job's user is the caller, and what the image has of that user is not the job's: its
/// home is all the same.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_image_whose_user_has_a_home_runs_in_a_workspace(#[case] mode: Mode) {
    let (Some(world), Some(base)) = (World::new(mode), base()) else {
        return;
    };
    let home = layer(&[
        TarEntry::dir("srv/app").owner(1000, 1000),
        TarEntry::file("srv/app/given", "given").owner(1000, 1000),
    ]);
    let mut made = Made::new(vec![base, home]);
    made.config = json!({ "User": "app" });
    made.import(&world, "home:1");
    world.write("in-workspace", "here");
    let text = "cat in-workspace ~/given; touch ~/new && id -u && ls ~";
    let done = world
        .bare_run(["--image", "oci:home:1", "--", "/bin/sh", "-c", text])
        .run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "heregiven1000\ngiven\nnew\n"),
        "{done}"
    );
}

#[test]
fn explain_shows_what_an_image_says() {
    let (Some(world), Some(made)) = (World::new(Mode::Rootless), app()) else {
        return;
    };
    let manifest = made.import(&world, "app:1");
    let shown = world.ask(
        [
            &["explain"][..],
            &in_image("app:1").each_ref().map(String::as_str),
        ]
        .concat(),
    );
    let shown = String::from_utf8(shown).unwrap();
    for part in [
        &manifest,
        "/srv/app/data",
        "app (1000:1000)",
        "GREETING",
        "echo $GREETING",
    ] {
        assert!(shown.contains(part), "no {part}: {shown}");
    }
}

#[test]
fn what_an_image_says_wrong_is_told() {
    let (Some(world), Some(base)) = (World::new(Mode::Rootless), base()) else {
        return;
    };
    for (config, code, said) in [
        (json!({}), 2, "neither an entry point nor a command"),
        (
            json!({ "Cmd": ["/bin/true"], "User": "nobody-here" }),
            125,
            "nobody-here",
        ),
        (
            json!({ "Cmd": ["/bin/true"], "WorkingDir": "/not/there" }),
            125,
            "/not/there",
        ),
        (json!({ "Cmd": ["/no/such"] }), 127, "/no/such"),
        (
            json!({ "Cmd": ["/bin/true"], "Env": ["=x"] }),
            2,
            "not NAME=VALUE",
        ),
    ] {
        let made = Made {
            config: config.clone(),
            ..Made::new(vec![base.clone()])
        };
        made.import(&world, "odd:1");
        let done = world.bare_run(in_image("odd:1")).run();
        assert!(done.err().contains(said), "{config}: no {said}: {done}");
        assert_eq!(done.code, code, "{config}: {done}");
    }
}
