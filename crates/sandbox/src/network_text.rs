//! What the kernel tells of the sockets of a network namespace, as text.

/// What `/proc/net/sockstat` tells of one namespace: the memory of sockets and the orphans in it are
/// those of the whole host.
pub(crate) fn of_this_namespace(text: &str) -> String {
    let mut words = text.split_whitespace().peekable();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if matches!(word, "mem" | "memory" | "orphan" | "alloc") {
            words.next();
        } else {
            kept.push(word);
        }
    }
    kept.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_own_figures_do_not_count() {
        let text = "sockets: used 231\nTCP: inuse 0 orphan 4 tw 2 alloc 9 mem 3\nUDP: inuse 1 mem 0\n\
                    FRAG: inuse 0 memory 7\n";
        assert_eq!(
            of_this_namespace(text),
            "sockets: used 231 TCP: inuse 0 tw 2 UDP: inuse 1 FRAG: inuse 0"
        );
    }
}
