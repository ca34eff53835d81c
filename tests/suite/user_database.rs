//! Trial F3: a job's home is what the user database says, it is there, and it can be written.

use rstest::rstest;
use tidemill_tests::{Mode, World, has_program, skip};

/// Says where the home is in three ways, and tries it.
const HOMES: &str = "echo ~; echo $HOME; getent passwd $(id -u) | cut -d: -f6; \
                     cd && touch .tried && test -w . && echo writable";

/// The same where there is no getent: what it reads.
const IN_IMAGE: &str = "echo ~; echo $HOME; grep \"^[^:]*:[^:]*:$(id -u):\" /etc/passwd | \
                        while IFS=: read a b c d e home f; do echo $home; done; \
                        cd && touch .tried && test -w . && echo writable";

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f3_home_is_what_the_user_database_says(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for user in [None, Some("0"), Some("1000"), Some("4242")] {
        let flags = user.map(|user| ["--user", user]);
        let done = world.job(HOMES).args(flags.into_iter().flatten()).run();
        assert_eq!(done.code, 0, "{done}");
        assert_one_home(&done);
        if let Some(user) = user {
            let id = world.job("id -u").args(["--user", user]).run();
            assert_eq!(id.out().trim(), user, "{id}");
        }
    }
}

fn assert_one_home(done: &tidemill_tests::Done) {
    let out = done.out();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 4, "{done}");
    assert!(lines[0].starts_with('/') && lines[0].len() > 1, "{done}");
    assert_eq!((lines[1], lines[2]), (lines[0], lines[0]), "{done}");
    assert_eq!(lines[3], "writable", "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f3_an_image_keeps_its_own_homes(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(root) = world.busybox_root() else {
        return;
    };
    let image = format!("dir:{}", root.display());
    for (user, home) in [
        ("0", Some("/root")),
        ("1000", Some("/srv/app")),
        ("4242", None),
    ] {
        let flags = ["--image", &image, "--no-workspace", "--user", user];
        let done = world.job(IN_IMAGE).args(flags).run();
        assert_eq!(done.code, 0, "{done}");
        assert_one_home(&done);
        if let Some(home) = home {
            assert!(done.out().starts_with(&format!("{home}\n")), "{done}");
        }
    }
}

/// Programs that do not take the variable's word for it, and what each of them says.
const LOOK_UPS: &[(&str, &str)] = &[
    (
        "ssh",
        "ssh -G -o ControlPath=%d x | sed -n 's/^controlpath //p'",
    ),
    (
        "git",
        "git config --global a.b c && (cd ~ && test -s .gitconfig && pwd)",
    ),
    (
        "python3",
        "python3 -c 'import os, pwd; print(pwd.getpwuid(os.getuid()).pw_dir)'",
    ),
    ("perl", "perl -e 'print +(getpwuid $>)[7], qq(\\n)'"),
    (
        "java",
        "java -XshowSettings:properties -version 2>&1 | sed -n 's/^ *user.home = //p'",
    ),
];

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f3_programs_find_the_same_home(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for (program, text) in LOOK_UPS {
        if !has_program(program) {
            skip(&format!("{program} is missing"));
            continue;
        }
        for user in ["0", "1000", "4242"] {
            let text = format!("echo ~; {text}");
            let done = world.job(&text).args(["--user", user]).run();
            let out = done.out();
            let lines: Vec<&str> = out.lines().collect();
            assert_eq!((done.code, lines.len()), (0, 2), "{done}");
            assert_eq!(lines[0], lines[1], "{program}: {done}");
        }
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f3_the_home_can_be_written_over_a_read_only_root(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can mount a root file system read-only");
        return;
    }
    let Some(root) = world.busybox_root() else {
        return;
    };
    let place = root.display();
    let script = format!(
        "mount --bind {place} {place}; mount -o remount,ro,bind {place}; \
         ! touch {place}/x 2>/dev/null; exec \"$@\""
    );
    let image = format!("dir:{place}");
    for user in ["0", "1000", "4242"] {
        let flags = ["--image", &image, "--no-workspace", "--user", user];
        let done = world.job(IN_IMAGE).args(flags).inside(&script).run();
        assert_eq!(done.code, 0, "{done}");
        assert_one_home(&done);
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_failed_job_of_user_0_is_told_what_that_is(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = "id -u; chown 4242 /etc/passwd || exit 3";
    let done = world.job(text).args(["--user", "root"]).run();
    assert_eq!((done.code, done.out().as_str()), (3, "0\n"), "{done}");
    assert!(done.err().contains("root by name"), "{done}");
    let well = world.job("id -un").args(["--user", "0"]).run();
    assert_eq!((well.out().as_str(), well.err().as_str()), ("root\n", ""));
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_user_is_named_as_the_image_names_it(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(root) = world.busybox_root() else {
        return;
    };
    let image = format!("dir:{}", root.display());
    let run = |user: &str| {
        let flags = ["--image", &image, "--no-workspace", "--user", user];
        world.job("id -u; id -g; echo $HOME").args(flags).run()
    };
    let done = run("app");
    let expected = "1000\n1000\n/srv/app\n";
    assert_eq!((done.code, done.out().as_str()), (0, expected), "{done}");
    let done = run("app:root");
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "1000\n0\n/srv/app\n"),
        "{done}"
    );
    let done = run("ghost");
    assert_eq!(done.code, 125, "{done}");
    for part in ["no user `ghost`", "--user UID:GID"] {
        assert!(done.err().contains(part), "no {part}: {done}");
    }
    // The host's own files have no names of an image.
    let done = world.bare_run(["--user", "ghost", "true"]).run();
    assert_eq!(done.code, 2, "{done}");
    assert!(done.err().contains("write numbers"), "{done}");
}
