//! Layers on their way to a stack.

use insta::assert_snapshot;

use crate::script::play;

#[test]
fn the_blob_of_a_layer_is_fetched_and_its_tree_built() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a
        fetched a
        built a
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > fetched a
      build tree a from blob/a
    > built a
      tell: 1 is executing
      start 1 on tree/a (tree/a)
    > exited 1
      drop sandbox of 1
      release tree a
      release blob a
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn a_local_layer_is_only_built() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 local:x
        built local:x
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 local:x
      build tree local:x
      tell: 1 is waiting for layers
    > built local:x
      tell: 1 is executing
      start 1 on tree/local:x (tree/local:x)
    > exited 1
      drop sandbox of 1
      release tree local:x
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn a_job_without_layers_is_available_at_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn a_manifest_is_read_and_the_blobs_that_it_names_are_fetched_too() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 manifest:m
        fetched m
        read m 1 x y
        fetched y
        fetched x
        built manifest:m
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 manifest:m
      fetch m
      tell: 1 is waiting for layers
    > fetched m
      read blob/m for 1
    > read m 1 x y
      fetch x
      fetch y
    > fetched y
    > fetched x
      build tree manifest:m from blob/m blob/x blob/y
    > built manifest:m
      tell: 1 is executing
      start 1 on tree/manifest:m (tree/manifest:m)
    > exited 1
      drop sandbox of 1
      release tree manifest:m
      release blob m
      release blob x
      release blob y
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn a_manifest_that_names_nothing_is_built_at_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 manifest:m
        fetched m
        read m 1
        built manifest:m
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 manifest:m
      fetch m
      tell: 1 is waiting for layers
    > fetched m
      read blob/m for 1
    > read m 1
      build tree manifest:m from blob/m
    > built manifest:m
      tell: 1 is executing
      start 1 on tree/manifest:m (tree/manifest:m)
    > exited 1
      drop sandbox of 1
      release tree manifest:m
      release blob m
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn a_manifest_that_names_a_blob_twice_and_itself_needs_each_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 manifest:m
        fetched m
        read m 1 x m x
        fetched x
        built manifest:m
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 manifest:m
      fetch m
      tell: 1 is waiting for layers
    > fetched m
      read blob/m for 1
    > read m 1 x m x
      fetch x
    > fetched x
      build tree manifest:m from blob/m blob/x
    > built manifest:m
      tell: 1 is executing
      start 1 on tree/manifest:m (tree/manifest:m)
    > exited 1
      drop sandbox of 1
      release tree manifest:m
      release blob m
      release blob x
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn a_manifest_may_name_a_blob_that_is_on_its_way_or_here() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 manifest:m a b
        fetched a
        fetched m
        read m 1 a b
        fetched b
        built a
        built b
        built manifest:m
        built manifest:m+a
        built manifest:m+a+b
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 manifest:m a b
      fetch m
      fetch a
      fetch b
      tell: 1 is waiting for layers
    > fetched a
      build tree a from blob/a
    > fetched m
      read blob/m for 1
    > read m 1 a b
    > fetched b
      build tree b from blob/b
      build tree manifest:m from blob/m blob/a blob/b
    > built a
    > built b
    > built manifest:m
      build stack manifest:m+a from tree/manifest:m tree/a
    > built manifest:m+a
      build stack manifest:m+a+b from stack/manifest:m+a tree/b
    > built manifest:m+a+b
      tell: 1 is executing
      start 1 on stack/manifest:m+a+b (tree/manifest:m tree/a tree/b)
    > exited 1
      drop sandbox of 1
      release stack manifest:m+a
      release stack manifest:m+a+b
      release tree manifest:m
      release tree a
      release tree b
      release blob m
      release blob a
      release blob b
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn trees_are_stacked_upwards_in_order() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a b c
        fetched c
        fetched b
        fetched a
        built c
        built b
        built a
        built a+b
        built a+b+c
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a b c
      fetch a
      fetch b
      fetch c
      tell: 1 is waiting for layers
    > fetched c
      build tree c from blob/c
    > fetched b
      build tree b from blob/b
    > fetched a
      build tree a from blob/a
    > built c
    > built b
    > built a
      build stack a+b from tree/a tree/b
    > built a+b
      build stack a+b+c from stack/a+b tree/c
    > built a+b+c
      tell: 1 is executing
      start 1 on stack/a+b+c (tree/a tree/b tree/c)
    > exited 1
      drop sandbox of 1
      release stack a+b
      release stack a+b+c
      release tree c
      release tree a
      release tree b
      release blob c
      release blob a
      release blob b
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn a_stack_waits_for_the_tree_that_comes_over_it() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a b
        fetched a
        built a
        fetched b
        built b
        built a+b
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a b
      fetch a
      fetch b
      tell: 1 is waiting for layers
    > fetched a
      build tree a from blob/a
    > built a
    > fetched b
      build tree b from blob/b
    > built b
      build stack a+b from tree/a tree/b
    > built a+b
      tell: 1 is executing
      start 1 on stack/a+b (tree/a tree/b)
    > exited 1
      drop sandbox of 1
      release stack a+b
      release tree a
      release tree b
      release blob a
      release blob b
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn a_job_becomes_available_when_its_topmost_stack_is_ready() {
    let transcript = play(
        "slots=1",
        "
        enqueue 9
        enqueue 1 local:a local:b
        built local:a
        built local:b
        built local:a+local:b
        exited 9
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 9
      tell: 9 is executing
      start 9
    > enqueue 1 local:a local:b
      build tree local:a
      build tree local:b
      tell: 1 is waiting for layers
    > built local:a
    > built local:b
      build stack local:a+local:b from tree/local:a tree/local:b
    > built local:a+local:b
      tell: 1 is waiting to execute
    > exited 9
      drop sandbox of 9
      tell: 9 completed, exit code 0
      tell: 1 is executing
      start 1 on stack/local:a+local:b (tree/local:a tree/local:b)
    > exited 1
      drop sandbox of 1
      release stack local:a+local:b
      release tree local:b
      release tree local:a
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn two_jobs_that_need_one_blob_cause_one_fetch_and_one_build() {
    let transcript = play(
        "slots=2",
        "
        enqueue 1 a
        enqueue 2 a
        fetched a
        built a
        exited 1
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > enqueue 2 a
      tell: 2 is waiting for layers
    > fetched a
      build tree a from blob/a
    > built a
      tell: 1 is executing
      start 1 on tree/a (tree/a)
      tell: 2 is executing
      start 2 on tree/a (tree/a)
    > exited 1
      drop sandbox of 1
      release tree a
      release blob a
      tell: 1 completed, exit code 0
    > exited 2
      drop sandbox of 2
      release tree a
      release blob a
      tell: 2 completed, exit code 0
    ");
}

#[test]
fn a_job_that_comes_while_a_tree_is_built_waits_for_that_build() {
    let transcript = play(
        "slots=2",
        "
        enqueue 1 a
        fetched a
        enqueue 2 a
        built a
        exited 1
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > fetched a
      build tree a from blob/a
    > enqueue 2 a
      tell: 2 is waiting for layers
    > built a
      tell: 1 is executing
      start 1 on tree/a (tree/a)
      tell: 2 is executing
      start 2 on tree/a (tree/a)
    > exited 1
      drop sandbox of 1
      release tree a
      release blob a
      tell: 1 completed, exit code 0
    > exited 2
      drop sandbox of 2
      release tree a
      release blob a
      tell: 2 completed, exit code 0
    ");
}

#[test]
fn a_job_whose_layers_are_all_here_gets_nothing() {
    let transcript = play(
        "slots=2",
        "
        enqueue 1 a b
        fetched a
        fetched b
        built a
        built b
        built a+b
        enqueue 2 a b
        exited 1
        enqueue 3 a b
        exited 2
        exited 3
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a b
      fetch a
      fetch b
      tell: 1 is waiting for layers
    > fetched a
      build tree a from blob/a
    > fetched b
      build tree b from blob/b
    > built a
    > built b
      build stack a+b from tree/a tree/b
    > built a+b
      tell: 1 is executing
      start 1 on stack/a+b (tree/a tree/b)
    > enqueue 2 a b
      tell: 2 is executing
      start 2 on stack/a+b (tree/a tree/b)
    > exited 1
      drop sandbox of 1
      release stack a+b
      release tree a
      release tree b
      release blob a
      release blob b
      tell: 1 completed, exit code 0
    > enqueue 3 a b
      tell: 3 is executing
      start 3 on stack/a+b (tree/a tree/b)
    > exited 2
      drop sandbox of 2
      release stack a+b
      release tree a
      release tree b
      release blob a
      release blob b
      tell: 2 completed, exit code 0
    > exited 3
      drop sandbox of 3
      release stack a+b
      release tree a
      release tree b
      release blob a
      release blob b
      tell: 3 completed, exit code 0
    ");
}

#[test]
fn jobs_share_the_lower_part_of_their_stacks() {
    let transcript = play(
        "slots=2",
        "
        enqueue 1 local:a local:b local:c
        enqueue 2 local:a local:b local:d
        built local:a
        built local:b
        built local:c
        built local:d
        built local:a+local:b
        built local:a+local:b+local:c
        built local:a+local:b+local:d
        exited 1
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 local:a local:b local:c
      build tree local:a
      build tree local:b
      build tree local:c
      tell: 1 is waiting for layers
    > enqueue 2 local:a local:b local:d
      build tree local:d
      tell: 2 is waiting for layers
    > built local:a
    > built local:b
      build stack local:a+local:b from tree/local:a tree/local:b
    > built local:c
    > built local:d
    > built local:a+local:b
      build stack local:a+local:b+local:c from stack/local:a+local:b tree/local:c
      build stack local:a+local:b+local:d from stack/local:a+local:b tree/local:d
    > built local:a+local:b+local:c
      tell: 1 is executing
      start 1 on stack/local:a+local:b+local:c (tree/local:a tree/local:b tree/local:c)
    > built local:a+local:b+local:d
      tell: 2 is executing
      start 2 on stack/local:a+local:b+local:d (tree/local:a tree/local:b tree/local:d)
    > exited 1
      drop sandbox of 1
      release stack local:a+local:b+local:c
      release stack local:a+local:b
      release tree local:c
      release tree local:b
      release tree local:a
      tell: 1 completed, exit code 0
    > exited 2
      drop sandbox of 2
      release stack local:a+local:b
      release stack local:a+local:b+local:d
      release tree local:d
      release tree local:b
      release tree local:a
      tell: 2 completed, exit code 0
    ");
}

#[test]
fn a_layer_that_stands_twice_in_one_list_is_fetched_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a b a
        fetched a
        built a
        fetched b
        built b
        built a+b
        built a+b+a
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a b a
      fetch a
      fetch b
      tell: 1 is waiting for layers
    > fetched a
      build tree a from blob/a
    > built a
    > fetched b
      build tree b from blob/b
    > built b
      build stack a+b from tree/a tree/b
    > built a+b
      build stack a+b+a from stack/a+b tree/a
    > built a+b+a
      tell: 1 is executing
      start 1 on stack/a+b+a (tree/a tree/b tree/a)
    > exited 1
      drop sandbox of 1
      release stack a+b
      release stack a+b+a
      release tree a
      release tree b
      release blob a
      release blob b
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn one_blob_can_be_an_archive_and_a_manifest() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a manifest:a
        fetched a
        read a 1 x
        fetched x
        built manifest:a
        built a
        built a+manifest:a
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a manifest:a
      fetch a
      tell: 1 is waiting for layers
    > fetched a
      build tree a from blob/a
      read blob/a for 1
    > read a 1 x
      fetch x
    > fetched x
      build tree manifest:a from blob/a blob/x
    > built manifest:a
    > built a
      build stack a+manifest:a from tree/a tree/manifest:a
    > built a+manifest:a
      tell: 1 is executing
      start 1 on stack/a+manifest:a (tree/a tree/manifest:a)
    > exited 1
      drop sandbox of 1
      release stack a+manifest:a
      release tree manifest:a
      release tree a
      release blob x
      release blob a
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn two_jobs_read_a_manifest_each_and_share_what_it_names() {
    let transcript = play(
        "slots=2",
        "
        enqueue 1 manifest:m
        enqueue 2 manifest:m
        fetched m
        read m 1 x
        read m 2 x
        fetched x
        built manifest:m
        exited 1
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 manifest:m
      fetch m
      tell: 1 is waiting for layers
    > enqueue 2 manifest:m
      tell: 2 is waiting for layers
    > fetched m
      read blob/m for 1
      read blob/m for 2
    > read m 1 x
      fetch x
    > read m 2 x
    > fetched x
      build tree manifest:m from blob/m blob/x
    > built manifest:m
      tell: 1 is executing
      start 1 on tree/manifest:m (tree/manifest:m)
      tell: 2 is executing
      start 2 on tree/manifest:m (tree/manifest:m)
    > exited 1
      drop sandbox of 1
      release tree manifest:m
      release blob m
      release blob x
      tell: 1 completed, exit code 0
    > exited 2
      drop sandbox of 2
      release tree manifest:m
      release blob m
      release blob x
      tell: 2 completed, exit code 0
    ");
}
