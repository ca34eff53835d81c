//! `tidemill.lock`: a tag stands for tomorrow what it stands for today.

use std::fs;

use serde_json::json;
use tidemill_tests::{Mode, World};

use super::made::{Made, base, in_image};

fn says(base: &[u8], word: &str) -> Made {
    let mut made = Made::new(vec![base.to_vec()]);
    made.config = json!({ "Cmd": ["/bin/echo", word] });
    made
}

#[test]
fn a_tag_that_moved_is_what_the_lock_file_has() {
    let (Some(world), Some(base)) = (World::new(Mode::Rootless), base()) else {
        return;
    };
    let old = says(&base, "old").import(&world, "app:old");
    says(&base, "new").import(&world, "app:latest");
    let run = |flags: &[&str]| world.bare_run(in_image("app:latest")).args(flags).run();
    assert_eq!(run(&[]).out(), "new\n");
    let lock = world.work().join("tidemill.lock");
    assert!(!lock.exists(), "nobody asked for one");
    let images = json!({ "docker.io/library/app:latest": old });
    world.write(
        "tidemill.lock",
        json!({ "version": 1, "images": images }).to_string(),
    );
    for flags in [&[][..], &["--locked"]] {
        let done = run(flags);
        assert_eq!((done.code, done.out().as_str()), (0, "old\n"), "{done}");
    }
    // What it has not is taken all the same, and the file stays as it is.
    let before = fs::read(&lock).unwrap();
    let done = world.bare_run(in_image("app:old")).run();
    assert_eq!(done.out(), "old\n", "{done}");
    assert_eq!(fs::read(&lock).unwrap(), before);
    // A digest that nobody has: it is told who asked for it.
    let gone = format!("sha256:{}", "1".repeat(64));
    let images = json!({ "127.0.0.1:9/gone:1": gone });
    world.write(
        "tidemill.lock",
        json!({ "version": 1, "images": images }).to_string(),
    );
    let done = world.bare_run(in_image("127.0.0.1:9/gone:1")).run();
    assert_eq!(done.code, 125, "{done}");
    let hint = format!("tidemill.lock holds 127.0.0.1:9/gone:1 to {gone}");
    assert!(done.err().contains(&hint), "{done}");
}

#[test]
fn locked_takes_nothing_else() {
    let (Some(world), Some(base)) = (World::new(Mode::Rootless), base()) else {
        return;
    };
    says(&base, "new").import(&world, "app:1");
    let run = || world.bare_run(in_image("app:1")).args(["--locked"]).run();
    let done = run();
    assert_eq!(done.code, 2, "{done}");
    assert!(done.err().contains("image pull --lock app:1"), "{done}");
    world.write("tidemill.lock", r#"{"version":1,"images":{}}"#);
    let done = run();
    assert_eq!(done.code, 2, "{done}");
    assert!(done.err().contains("has no image app:1"), "{done}");
    let text = fs::read_to_string(world.work().join("tidemill.lock")).unwrap();
    assert_eq!(text, r#"{"version":1,"images":{}}"#);
    world.write("tidemill.lock", "not json");
    let done = run();
    assert_eq!(done.code, 2, "{done}");
    assert!(done.err().contains("is not a lock file"), "{done}");
    let done = world.bare_run(["--locked", "--", "true"]).run();
    assert_eq!(done.code, 2, "{done}");
    assert!(done.err().contains("the job has none"), "{done}");
}
