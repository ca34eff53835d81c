//! How `ps` and short ids lead to executions.

use rstest::rstest;
use serde_json::Value;
use tidemill_tests::{Done, Mode, World};

fn list(world: &World, flags: &[&str]) -> Value {
    let answer = world.ask([&["ps", "--format", "json"], flags].concat());
    serde_json::from_slice(&answer).unwrap()
}

fn ids(answer: &Value) -> Vec<String> {
    let executions = answer["executions"].as_array().unwrap();
    let id = |record: &Value| record["id"].as_str().unwrap().to_owned();
    executions.iter().map(id).collect()
}

/// The last twelve digits.
fn short(id: &str) -> &str {
    id.rsplit('-').next().unwrap()
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_list_that_was_cut_says_where_it_goes_on(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let run = |name: &str| {
        let done = world.job("true").args(["--name", name]).run();
        done.record().id().to_owned()
    };
    let mut made = ["a", "b", "a", "b", "a"].map(run).to_vec();
    made.reverse();
    let first = list(&world, &["--limit", "2"]);
    assert_eq!(ids(&first), made[..2]);
    assert_eq!(first["more"], true, "{first:#}");
    assert_eq!(first["next"], made[1], "{first:#}");
    let second = list(&world, &["--limit", "2", "--after", &made[1]]);
    assert_eq!(ids(&second), made[2..4]);
    let last = list(&world, &["--limit", "2", "--after", short(&made[3])]);
    assert_eq!(ids(&last), made[4..]);
    assert_eq!(
        (&last["more"], &last["next"]),
        (&Value::Bool(false), &Value::Null),
        "{last:#}"
    );
    // The place need not match what is asked for.
    let named = list(&world, &["--name", "b", "--after", &made[0]]);
    assert_eq!(ids(&named), [&made[1][..], &made[3]]);

    let text = world.call(["ps", "--limit", "2"]);
    let next = format!("--after {}", short(&made[1]));
    assert!(text.err().contains(&next), "{text}");
    assert_eq!(text.out().lines().count(), 3, "{text}");
    let rest = world.call(["ps", "--after", short(&made[1])]);
    assert_eq!(rest.out().lines().count(), 4, "{rest}");
    assert_eq!(rest.err(), "", "{rest}");
    let unknown = world.call(["ps", "--after", "nothing"]);
    assert_eq!(unknown.code, 2, "{unknown}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_empty_list_says_why_it_is_empty(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let said = |flags: &[&str]| {
        let done = world.call([&["ps"], flags].concat());
        assert_eq!((done.code, done.out().lines().count()), (0, 1), "{done}");
        done.err()
    };
    assert!(said(&[]).contains("nothing has run yet"));
    world.job("true").run();
    assert!(said(&["--state", "failed"]).contains("no execution matches"));
    assert!(said(&["--after", "last"]).contains("no older execution"));
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_id_that_could_mean_several_is_answered_with_a_table(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let ran: Vec<Done> = (0..2)
        .map(|number| world.job(&format!("exit {number}")).run())
        .collect();
    // All ids begin with the time, whose first digits are the same for years.
    let done = world.call(["show", "01"]);
    assert_eq!(done.code, 2, "{done}");
    let err = done.err();
    for (done, end) in ran.iter().zip(["succeeded", "failed"]) {
        let id = short(done.record().id());
        let line = err.lines().find(|line| line.contains(id));
        let line = line.unwrap_or_else(|| panic!("{id} is not in {err}"));
        assert!(
            line.contains(end) && line.contains("exit ") && line.contains(" s "),
            "{err}"
        );
    }
    let json = world.call(["show", "01", "--format", "json"]);
    let answer: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        answer["error"]["choices"].as_array().map(Vec::len),
        Some(3),
        "{answer:#}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_name_finds_the_newest_that_has_it(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let run = |name: &str, text: &str| {
        let done = world.job(text).args(["--name", name]).run();
        done.record().id().to_owned()
    };
    run("twice", "echo old");
    let only = run("nightly", "echo of the night");
    let newest = run("twice", "echo new");
    let logs = world.call(["logs", "nightly"]);
    assert_eq!(
        (logs.out().as_str(), logs.err().as_str()),
        ("of the night\n", ""),
        "{logs}"
    );
    for command in ["show", "events", "wait", "cancel"] {
        let done = world.call([command, "nightly"]);
        assert_eq!((done.code, done.err().as_str()), (0, ""), "{done}");
    }
    let shown = world.call(["show", "twice"]);
    assert!(shown.out().contains(&newest), "{shown}");
    let said = format!("this is the newest, {}", short(&newest));
    assert!(shown.err().contains(&said), "{shown}");
    // What is an id is no name.
    run(short(&only), "echo other");
    let logs = world.call(["logs", short(&only)]);
    assert_eq!(logs.out(), "of the night\n", "{logs}");
    let unknown = world.call(["show", "night"]);
    assert_eq!(unknown.code, 2, "{unknown}");
}
