//! Programs with a sandbox of their own: Chromium, and bubblewrap as the one that many others use.
//! They make user namespaces, which takes `--grant userns`, or do without their own sandbox.

use rstest::rstest;
use tidemill_tests::{Mode, Trial, World};

use super::{warnings, world_with};

/// A world with a page that writes a number itself. `None` if there is no Chromium, which was said.
fn world_with_page(mode: Mode) -> Option<World> {
    let world = world_with(mode, &["chromium"])?;
    let page = "<html><body><script>document.write('<p>' + 6 * 7 + '</p>')</script></body></html>";
    world.write("page.html", page);
    Some(world)
}

/// Chromium, told to show what becomes of the page.
fn chromium<'w>(world: &'w World, flags: &[&str]) -> Trial<'w> {
    let page = format!("file://{}/page.html", world.work().display());
    let command = [
        &["chromium", "--headless"],
        flags,
        &["--dump-dom", page.as_str()],
    ]
    .concat();
    world.program(command).args(["--net", "none"])
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn chromium_without_its_own_sandbox_runs_a_page(#[case] mode: Mode) {
    let Some(world) = world_with_page(mode) else {
        return;
    };
    let done = chromium(&world, &["--no-sandbox"]).run();
    assert_eq!(done.code, 0, "{done}");
    assert!(done.out().contains("<p>42</p>"), "{done}");
    assert!(!warnings(&done).contains(&"refused"), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn chromium_with_its_own_sandbox_takes_a_grant(#[case] mode: Mode) {
    let Some(world) = world_with_page(mode) else {
        return;
    };
    let plain = chromium(&world, &[]).run();
    assert_ne!(plain.code, 0, "{plain}");
    assert!(plain.err().contains("No usable sandbox"), "{plain}");
    assert!(plain.err().contains("policy: clone\n"), "{plain}");
    let granted = chromium(&world, &[]).args(["--grant", "userns"]).run();
    assert_eq!(granted.code, 0, "{granted}");
    assert!(granted.out().contains("<p>42</p>"), "{granted}");
    assert!(!warnings(&granted).contains(&"refused"), "{granted}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn bubblewrap_nests_with_a_grant(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["bwrap"]) else {
        return;
    };
    let bubblewrap = |proc: &[&str], grants: &[&str]| {
        let walls = ["--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev"];
        let text = "echo inside; echo x >/usr/x";
        let shell = ["sh", "-c", text];
        let command = [&["bwrap"], &walls[..], proc, &shell].concat();
        world.program(command).args(grants).run()
    };
    let granted = &["--net", "none", "--grant", "userns"];
    let over = &["--ro-bind", "/proc", "/proc"];

    let refused = bubblewrap(over, &["--net", "none"]);
    assert_eq!((refused.code, refused.out().as_str()), (1, ""), "{refused}");
    assert!(refused.err().contains("policy: clone\n"), "{refused}");

    let nested = bubblewrap(over, granted);
    assert!(nested.out() == "inside\n", "{nested}");
    assert_ne!(nested.code, 0, "it wrote where it may only read: {nested}");
    assert!(warnings(&nested).is_empty(), "{nested}");

    // The kernel mounts no new /proc for one who sees only a part of the old one.
    let own = bubblewrap(&["--proc", "/proc"], granted);
    assert_eq!((own.code, own.out().as_str()), (1, ""), "{own}");
    assert!(own.err().contains("mount proc on"), "{own}");
}
