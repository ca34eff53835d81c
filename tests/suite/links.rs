//! Symbolic links that a job, or whoever wrote its files, has put where the next job is started.

use std::os::unix::fs::symlink;

use rstest::rstest;
use tidemill_tests::{Mode, World};

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_workdir_in_the_workspace_does_not_lead_out_of_it(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    world.make_dir("real");
    for (link, target) in [
        ("out", "/etc"),
        ("up", "../../../../../../../../etc"),
        ("real/deep", "/etc"),
        ("magic", "/proc/self/root/etc"),
        ("in", "real"),
    ] {
        symlink(target, world.work().join(link)).unwrap();
    }
    for workdir in ["out", "up", "real/deep", "in/deep"] {
        let done = world.job("pwd -P").args(["--workdir", workdir]).run();
        assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
        assert_eq!(done.record().reason(), "bad_workdir", "{done}");
        let said = done.err();
        let asked = format!("{}/{workdir}", world.work().display());
        for part in [asked.as_str(), "`/etc`", "--workdir /etc"] {
            assert!(said.contains(part), "no {part}: {done}");
        }
        // Nothing of it was run.
        let events = world.events(done.record().id());
        let started = events
            .iter()
            .any(|event| event.to_string().contains("\"started\""));
        assert!(!started, "{events:?}");
        let explained = world.call(["explain", "--workdir", workdir, "--", "true"]);
        assert_eq!(explained.code, 125, "{explained}");
        assert!(explained.err().contains("--workdir /etc"), "{explained}");
    }
    let magic = world.job("pwd -P").args(["--workdir", "magic"]).run();
    assert_eq!((magic.code, magic.out().as_str()), (125, ""), "{magic}");
    // What the message says to write, and a link that stays inside.
    for (workdir, place) in [("/etc", "/etc".to_owned()), ("in", real(&world, "real"))] {
        let done = world.job("pwd -P").args(["--workdir", workdir]).run();
        assert_eq!((done.code, done.out()), (0, format!("{place}\n")), "{done}");
    }
}

/// A path of the workspace without links.
fn real(world: &World, path: &str) -> String {
    let real = world.work().canonicalize().unwrap().join(path);
    real.to_str().unwrap().to_owned()
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_workspace_behind_a_link_that_a_job_made_is_told(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let other = world.make_dir(world.path().join("other"));
    world.write(other.join("file"), "of the other\n");
    let plant = format!("ln -s {} sub; ln -s /etc settings", other.display());
    let planted = world.job(&plant).args(["--write"]).run();
    assert_eq!(planted.code, 0, "{planted}");

    let done = world
        .job("cat file; echo mine > file")
        .args(["--workspace", "sub"])
        .run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "of the other\n"),
        "{done}"
    );
    let said = done.err();
    let warnings: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("symbolic link"))
        .collect();
    let [warning] = warnings[..] else {
        panic!("one line tells it: {done}");
    };
    let sub = world.work().join("sub");
    for part in [sub.to_str().unwrap(), other.to_str().unwrap(), "warning"] {
        assert!(warning.contains(part), "no {part}: {done}");
    }
    // What it resolved to is in the record and in the explanation.
    let explained = world.call(["explain", "--workspace", "sub", "--", "true"]);
    assert_eq!(explained.code, 0, "{explained}");
    let line = format!("which `{}` leads to", sub.display());
    assert!(explained.out().contains(&line), "{explained}");
    assert!(
        explained.out().contains(other.to_str().unwrap()),
        "{explained}"
    );

    // A directory that is itself named is no news.
    let plain = world
        .job("true")
        .args(["--workspace", other.to_str().unwrap()])
        .run();
    assert_eq!((plain.code, plain.err().as_str()), (0, ""), "{plain}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_link_makes_no_workspace_of_what_is_no_project(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let keys = world.make_dir(world.home().join(".ssh"));
    world.write(keys.join("id_ed25519"), "private\n");
    let home = world.home();
    let links = [
        ("settings", "/etc"),
        ("home", home.to_str().unwrap()),
        ("keys", keys.to_str().unwrap()),
    ];
    for (link, target) in links {
        symlink(target, world.work().join(link)).unwrap();
    }
    for (link, target) in links {
        for write in [&[][..], &["--write"]] {
            let done = world
                .job("ls; cat id_ed25519")
                .args(["--workspace", link])
                .args(write)
                .run();
            assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
            assert_eq!(done.record().reason(), "bad_spec", "{done}");
            let advice = format!("--workspace {target}");
            assert!(done.err().contains(&advice), "no {advice}: {done}");
        }
    }
}
