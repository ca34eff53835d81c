//! Symbolic links that a job, or whoever wrote its files, has put where the next job is started.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rstest::rstest;
use tidemill_tests::{Mode, World, has_program, skip, tree};

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

/// What a job does to a workspace that it may write: the directory in it becomes another one.
fn swap(world: &World, other: &Path) {
    let swap = format!("rmdir sub; ln -s {} sub", other.display());
    let swapped = world.job(&swap).args(["--write"]).run();
    assert_eq!(swapped.code, 0, "{swapped}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn nothing_is_written_for_real_behind_a_link_that_a_job_made(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let other = world.make_dir(world.path().join("other"));
    world.make_dir(other.join("deep"));
    world.make_dir("sub");
    swap(&world, &other);
    let before = tree(&other);
    let sub = world.work().join("sub");
    let sub = sub.to_str().unwrap();
    let to = other.to_str().unwrap();
    let deep = format!("{to}/deep");
    let bind = |source: &str| vec!["--grant".to_owned(), format!("bind:{source}:/mnt/b:rw")];
    let workspace = |path: &str| ["--workspace", path, "--write"].map(str::to_owned).to_vec();
    for (flags, advice) in [
        (workspace("sub"), format!("--workspace {to}")),
        (workspace("./sub/"), format!("--workspace {to}")),
        (workspace(sub), format!("--workspace {to}")),
        (workspace("sub/deep"), format!("--workspace {deep}")),
        (bind("sub"), format!("--grant bind:{to}:/mnt/b:rw")),
        (
            bind(&format!("{sub}/deep")),
            format!("--grant bind:{deep}:/mnt/b:rw"),
        ),
    ] {
        let done = world
            .job("touch here; touch /mnt/b/here; echo ran")
            .args(&flags)
            .run();
        assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
        assert_eq!(done.record().reason(), "bad_spec", "{done}");
        for part in [&format!("the symbolic link `{sub}`"), &advice] {
            assert!(done.err().contains(part), "no {part}: {done}");
        }
        let warnings = done
            .err()
            .lines()
            .filter(|line| line.contains("warning"))
            .count();
        assert_eq!(warnings, 0, "the error says it all: {done}");
        assert!(tree(&other) == before, "{done}");
        let explained = world.call(
            ["explain"]
                .map(str::to_owned)
                .into_iter()
                .chain(flags)
                .chain(["--", "true"].map(str::to_owned)),
        );
        assert_eq!(explained.code, 125, "{explained}");
        assert!(explained.err().contains(&advice), "{explained}");
    }
    // What the message says to write.
    let done = world
        .job("touch here")
        .args(["--workspace", to, "--write"])
        .run();
    assert_eq!((done.code, done.err().as_str()), (0, ""), "{done}");
    assert!(other.join("here").exists());
    let done = world.job("touch /mnt/b/there").args(bind(to)).run();
    assert_eq!((done.code, done.err().as_str()), (0, ""), "{done}");
    assert!(other.join("there").exists());
}

/// Between the look at a path and its use, a running job may have swapped what is there.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_link_that_comes_and_goes_is_never_written_through(#[case] mode: Mode) {
    const RUNS: usize = 40;
    let Some(world) = World::new(mode) else {
        return;
    };
    if !has_program("perl") {
        skip("perl is missing");
        return;
    }
    let other = world.make_dir(world.path().join("other"));
    world.make_dir("sub");
    // renameat2 exchanges the two, so that there is always one of them.
    let swap = format!(
        r#"ln -s {} link; echo ready; exec perl -e '
        my ($one, $other) = ("sub", "link");
        syscall(316, -100, $one, -100, $other, 2) == 0 or die $! while 1;'"#,
        other.display()
    );
    let swapping = world.job(&swap).args(["--write"]).start();
    swapping.await_output("ready\n");
    let mut codes = Vec::new();
    for run in 0..RUNS {
        let flags = if run % 2 == 0 {
            ["--write", "--workspace", "sub"]
        } else {
            ["--no-workspace", "--grant", "bind:sub:/mnt/b:rw"]
        };
        let text = "touch here /mnt/b/here 2>/dev/null; true";
        codes.push(world.job(text).args(flags).run().code);
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0, "{codes:?}");
    }
    swapping.cancel();
    swapping.wait();
    for code in [0, 125] {
        assert!(codes.contains(&code), "not both were met: {codes:?}");
    }
}

/// The caller has gone there, so it is the directory that is meant; that its name is another one is told.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn the_directory_that_the_caller_stands_in_is_written_and_told(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let other = world.make_dir(world.path().join("other"));
    world.make_dir(other.join("deep"));
    world.make_dir("sub");
    swap(&world, &other);
    let sub = world.work().join("sub");
    for (number, flags) in [&["--write"][..], &["--write", "--workspace", "."]]
        .into_iter()
        .enumerate()
    {
        let done = world
            .job(&format!("pwd; touch here-{number}"))
            .args(flags)
            .directory(&sub)
            .run();
        assert_eq!(
            (done.code, done.out()),
            (0, format!("{}\n", sub.display())),
            "{done}"
        );
        assert!(other.join(format!("here-{number}")).exists(), "{done}");
        let said = done.err();
        let told = format!("`{}` is a symbolic link", sub.display());
        let told: Vec<&str> = said.lines().filter(|line| line.contains(&told)).collect();
        assert_eq!(told.len(), 1, "{done}");
        assert!(told[0].contains("warning") && told[0].contains(other.to_str().unwrap()));
    }
    // What lies below is reached from there.
    let done = world
        .job("touch below; touch /mnt/b/bound")
        .args([
            "--write",
            "--workspace",
            "deep",
            "--grant",
            "bind:deep:/mnt/b:rw",
        ])
        .directory(&sub)
        .run();
    assert_eq!(done.code, 0, "{done}");
    assert!(other.join("deep/below").exists() && other.join("deep/bound").exists());
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_source_that_is_only_read_behind_a_link_is_told(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let other = world.make_dir(world.path().join("other"));
    world.write(other.join("file"), "of the other\n");
    world.make_dir("sub");
    swap(&world, &other);
    symlink(&other, world.home().join("own")).unwrap();
    let link = format!(
        "`{}` is a symbolic link",
        world.work().join("sub").display()
    );
    let own = world.home().join("own/file");
    for (flags, warnings) in [
        (["--layer", "dir:sub=/mnt/x"], 1),
        (["--layer", "file:sub/file=/mnt/x/file"], 1),
        (
            [
                "--layer",
                &format!("glob:{}/sub/*=/mnt/x", world.work().display()),
            ],
            1,
        ),
        (["--grant", "bind:sub:/mnt/x"], 1),
        // Links of the caller's own elsewhere, and of the system, are no news.
        (
            ["--layer", &format!("file:{}=/mnt/x/file", own.display())],
            0,
        ),
        (["--layer", &format!("dir:{}=/mnt/x", other.display())], 0),
    ] {
        let done = world
            .job("cat /mnt/x/file; echo mine > /mnt/x/file; true")
            .args(flags)
            .run();
        assert_eq!(
            (done.code, done.out().as_str()),
            (0, "of the other\n"),
            "{done}"
        );
        let said = done.err();
        let told: Vec<&str> = said
            .lines()
            .filter(|line| line.contains("symbolic link"))
            .collect();
        assert_eq!(told.len(), warnings, "{done}");
        for line in told {
            for part in ["warning", &link, other.to_str().unwrap()] {
                assert!(line.contains(part), "no {part}: {done}");
            }
        }
    }
    assert_eq!(
        fs::read_to_string(other.join("file")).unwrap(),
        "of the other\n"
    );
}
