//! What the config of an image says about the program.

use rstest::rstest;
use serde_json::{Value, json};
use tidemill_tests::{Mode, TarEntry, World};

use super::made::{Made, base, hard, in_image, layer};

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

/// Says who owns what in the image and in the workspace, and tries what only an owner may do.
const OWNERS: &str = "stat -c '%n %u:%g %a' /srv/app /srv/app/own /srv/app/roots /srv/other /bin /srv/link; \
                      cat /srv/app/again; echo more >> /srv/app/own; touch /srv/app/new; chmod 700 /srv/app/own; \
                      test -O /srv/app/new && test -O /srv/app/own && echo mine; \
                      test -d /ws && cd /ws && test -O given && echo w > written; :";
/// What it says.
const OWNED: &str = "/srv/app 1000:1000 700\n/srv/app/own 1000:1000 600\n/srv/app/roots 0:0 644\n\
                     /srv/other 42:1000 750\n/bin 0:0 755\n/srv/link 1000:1000 777\nown\nmine\n";

fn owned_entries() -> [TarEntry; 6] {
    [
        TarEntry::dir("srv/app").mode(0o700).owner(1000, 1000),
        TarEntry::file("srv/app/own", "own\n")
            .mode(0o600)
            .owner(1000, 1000),
        TarEntry::file("srv/app/roots", "root's").mode(0o644),
        hard("srv/app/again", "srv/app/own"),
        TarEntry::dir("srv/other").mode(0o750).owner(42, 1000),
        TarEntry::symlink("srv/link", "app").owner(1000, 1000),
    ]
}

/// What an image has of the user that the job is belongs to the job, whether it works on files of the caller or
/// not; and so do those.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_an_image_has_of_the_jobs_user_is_the_jobs_own(#[case] mode: Mode) {
    let (Some(world), Some(base)) = (World::new(mode), base()) else {
        return;
    };
    let mut made = Made::new(vec![base, layer(&owned_entries())]);
    made.config = json!({ "User": "app" });
    made.import(&world, "own:1");
    let given = world.write("work/given", "here");
    let work = given.parent().unwrap().to_str().unwrap().to_owned();
    let bind = format!("bind:{work}:/ws:rw");
    let with_bind = ["--no-workspace", "--grant", &bind];
    for flags in [
        &with_bind[..],
        &["--no-workspace"],
        &["--workspace", &work, "--write"],
    ] {
        let done = world
            .bare_run(["--image", "oci:own:1"])
            .args(flags)
            .args(["--", "/bin/sh", "-c", OWNERS])
            .run();
        assert_eq!(
            (done.code, done.out().as_str()),
            (0, OWNED),
            "{flags:?} {done}"
        );
    }
    assert_eq!(
        std::fs::read(given.with_file_name("written")).unwrap(),
        b"w\n"
    );
    // Another user of the same image: what is theirs is another part of it.
    let line =
        "id -u; stat -c %u:%g /srv/other /srv/app /bin; cd /srv/other && test -O . && echo mine";
    let done = world
        .bare_run([
            "--image",
            "oci:own:1",
            "--user",
            "42:43",
            "--workspace",
            &work,
        ])
        .args(["--", "/bin/sh", "-c", line])
        .run();
    let own = "42\n42:1000\n1000:1000\n0:0\nmine\n";
    assert_eq!((done.code, done.out().as_str()), (0, own), "{done}");
    // Root of the image, who owns nearly all of it, can change it.
    let line = "id -u; stat -c %u:%g /bin /srv/app; echo x > /bin/new && stat -c %u:%g /bin/new";
    let done = world
        .bare_run([
            "--image",
            "oci:own:1",
            "--user",
            "0:0",
            "--workspace",
            &work,
        ])
        .args(["--", "/bin/sh", "-c", line])
        .run();
    let own = "0\n0:0\n1000:1000\n0:0\n";
    assert_eq!((done.code, done.out().as_str()), (0, own), "{done}");
    let verified = world.call(["cache", "verify", "--format", "json"]);
    assert_eq!(verified.code, 0, "{verified}");
}

/// The same of an archive, whose user is named on the command line.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_an_archive_has_of_the_jobs_user_is_the_jobs_own(#[case] mode: Mode) {
    let (Some(world), Some(mut bytes)) = (World::new(mode), base()) else {
        return;
    };
    // Without the blocks at its end, so that more can follow.
    bytes.truncate(bytes.len() - 1024);
    bytes.extend(layer(&owned_entries()));
    let archive = world.write("root.tar", bytes);
    let image = format!("tar:{}", archive.display());
    for flags in [&["--no-workspace"][..], &[]] {
        let done = world
            .bare_run(["--image", &image, "--user", "app"])
            .args(flags)
            .args(["--", "/bin/sh", "-c", OWNERS])
            .run();
        assert_eq!(
            (done.code, done.out().as_str()),
            (0, OWNED),
            "{flags:?} {done}"
        );
    }
    let explained = world.call([
        "explain", "--image", &image, "--user", "app", "--", "/bin/id",
    ]);
    assert_eq!(explained.code, 0, "{explained}");
}

/// A database with groups that list users.
fn with_groups(base: Vec<u8>) -> Made {
    let groups = "root:x:0:\napp:x:1000:\nwheel:x:10:app\naudio:x:29:root,app\n7:x:70:\n";
    Made::new(vec![base, layer(&[TarEntry::file("etc/group", groups)])])
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
#[case::nobody(Mode::Nobody)]
fn users_and_groups_are_those_that_docker_takes(#[case] mode: Mode) {
    let (Some(world), Some(base)) = (World::new(mode), base()) else {
        return;
    };
    let has_groups = mode != Mode::Nobody;
    for (user, ids, groups) in [
        ("app", "1000 1000", "1000 10 29"),
        ("1000", "1000 1000", "1000 10 29"),
        ("1000:", "1000 1000", "1000 10 29"),
        ("app:audio", "1000 29", "29"),
        ("app:app", "1000 1000", "1000"),
        ("app:7", "1000 7", "7"),
        (":29", "0 29", "29"),
        ("4321", "4321 0", "0"),
        ("4321:43", "4321 43", "43"),
    ] {
        let mut made = with_groups(base.clone());
        made.config =
            json!({ "User": user, "Cmd": ["/bin/sh", "-c", "echo $(id -u) $(id -g); id -G"] });
        made.import(&world, "users:1");
        let done = world.bare_run(in_image("users:1")).run();
        // Without sub-ids the kernel lets nobody choose groups.
        let only = groups.split(' ').next().unwrap();
        let groups = if has_groups { groups } else { only };
        let out = done.out();
        let mut lines = out.lines();
        assert_eq!((done.code, lines.next()), (0, Some(ids)), "{user}: {done}");
        let said: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let said: Vec<&str> = said.into_iter().filter(|id| *id != "65534").collect();
        assert_eq!(said.join(" "), groups, "{user}: {done}");
    }
    for (user, said) in [
        ("nobody-here", "nobody-here"),
        ("app:nobodies", "nobodies"),
        ("app:app:app", "app:app"),
        ("99999999999", "99999999999"),
        ("70000", "70000"),
    ] {
        let mut made = with_groups(base.clone());
        made.config = json!({ "User": user, "Cmd": ["/bin/true"] });
        made.import(&world, "users:1");
        let done = world.bare_run(in_image("users:1")).run();
        assert_eq!(done.code, 125, "{user}: {done}");
        assert!(
            done.err().contains(said) && done.err().contains("--user"),
            "{user}: {done}"
        );
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_job_can_use_the_groups_that_its_image_gives_it(#[case] mode: Mode) {
    let (Some(world), Some(base)) = (World::new(mode), base()) else {
        return;
    };
    let mut made = with_groups(base);
    let shared = TarEntry::dir("srv/shared").mode(0o770).owner(0, 29);
    made.layers.push(layer(&[shared]));
    made.config = json!({ "User": "app" });
    made.import(&world, "groups:1");
    let line = "cd /srv/shared && echo x > new && chgrp wheel new && stat -c %u:%g new";
    for flags in [&["--no-workspace"][..], &[]] {
        let done = world
            .bare_run(["--image", "oci:groups:1"])
            .args(flags)
            .args(["--", "/bin/sh", "-c", line])
            .run();
        assert_eq!((done.code, done.out().as_str()), (0, "1000:10\n"), "{done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
#[case::nobody(Mode::Nobody)]
fn a_directory_that_an_image_names_and_lacks_is_made_for_the_job(#[case] mode: Mode) {
    let (Some(world), Some(base)) = (World::new(mode), base()) else {
        return;
    };
    let links = [
        TarEntry::dir("data/real"),
        TarEntry::symlink("way", "/data/real"),
    ];
    let mut made = Made::new(vec![base, layer(&links)]);
    for (wanted, there) in [
        ("/not/there/yet", "/not/there/yet"),
        ("build", "/build"),
        ("/way/further", "/data/real/further"),
    ] {
        made.config = json!({
            "User": "app", "WorkingDir": wanted,
            "Cmd": ["/bin/sh", "-c", "pwd -P; touch new && stat -c '%u:%g %a' ."],
        });
        made.import(&world, "dir:1");
        let done = world.bare_run(in_image("dir:1")).run();
        let expected = format!("{there}\n1000:1000 755\n");
        assert_eq!((done.code, done.out()), (0, expected), "{wanted}: {done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_images_signal_asks_its_jobs_to_end(#[case] mode: Mode) {
    let (Some(world), Some(base)) = (World::new(mode), base()) else {
        return;
    };
    let mut made = Made::new(vec![base]);
    made.config = json!({ "StopSignal": "SIGINT" });
    made.import(&world, "stop:1");
    let script = "trap 'echo cleanup; exit 7' INT; echo ready; while :; do sleep 0.1; done";
    // What is said goes before what the image says.
    for (own, signal, out) in [
        (&[][..], "SIGINT", "ready\ncleanup\n"),
        (&["--stop-signal", "USR1"], "SIGUSR1", "ready\n"),
    ] {
        let job = world
            .job(script)
            .args(in_image("stop:1"))
            .args(["--grace", "60s"])
            .args(own)
            .start();
        job.await_output("ready").cancel();
        let done = job.wait();
        assert_eq!(done.out(), out, "{done}");
        let record = done.record();
        let said = format!("{signal} sent");
        assert!(record.reason_text().contains(&said), "{done}");
    }
    let image = in_image("stop:1");
    let mut words = vec!["explain", "--format", "json"];
    words.extend(image.each_ref().map(String::as_str));
    words.push("/bin/true");
    let explained: Value = serde_json::from_slice(&world.ask(words)).unwrap();
    assert_eq!(explained["spec"]["stop_signal"], "SIGINT", "{explained:#}");
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
            json!({ "Cmd": ["/bin/true"], "WorkingDir": "/bin/sh/below" }),
            125,
            "/bin/sh",
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
