//! Images by their digest: what is here is used, whatever name it came by, and no registry is asked.

use tidemill_tests::{Mode, World};

use super::fake::Fake;
use super::fetched::made;
use super::made::in_image;

fn says_fetched(world: &World, name: &str) {
    let done = world.bare_run(in_image(name)).run();
    assert_eq!((done.code, done.out().as_str()), (0, "fetched"), "{done}");
}

#[test]
fn g3_a_digest_needs_no_registry_once_its_image_is_here() {
    let (Some(world), Some(made)) = (World::new(Mode::Rootless), made()) else {
        return;
    };
    let fake = Fake::serve(&world, &made, |_, _| None);
    let repository = format!("{}/app", fake.host());
    let by_digest = format!("{repository}@{}", fake.digest);
    says_fetched(&world, &format!("{repository}:1"));
    let before = fake.asked("/v2/");
    says_fetched(&world, &by_digest);
    says_fetched(&world, &format!("{repository}:other@{}", fake.digest));
    world.ask(["image", "pull", &by_digest]);
    assert_eq!(fake.asked("/v2/"), before, "nobody is asked");
    // Pulled by its digest, and named by nothing else.
    let Some(world) = World::new(Mode::Rootless) else {
        return;
    };
    world.ask(["image", "pull", &by_digest]);
    let before = fake.asked("/v2/");
    says_fetched(&world, &by_digest);
    assert_eq!(fake.asked("/v2/"), before, "nobody is asked");
}

#[test]
fn the_digest_of_an_index_is_one_too() {
    let (Some(world), Some(made)) = (World::new(Mode::Rootless), made()) else {
        return;
    };
    let fake = Fake::serve_index(&world, &made);
    let repository = format!("{}/app", fake.host());
    says_fetched(&world, &format!("{repository}:1"));
    let before = fake.asked("/v2/");
    for digest in [&fake.digest, fake.index.as_ref().unwrap()] {
        says_fetched(&world, &format!("{repository}@{digest}"));
    }
    assert_eq!(fake.asked("/v2/"), before, "nobody is asked");
}
