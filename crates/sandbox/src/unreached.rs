//! Whether a job looked for a network that it does not have.
//!
//! In a network namespace with nothing but a loopback, the kernel counts each packet that had no route,
//! and each datagram to a port of the loopback where nobody listens (where a resolver would be asked).
//! Both are what a program does that wants out; afterwards it says so in words of its own, or not at all.

/// How often something inside wanted to reach an address that only a network has: adds up the counters
/// of `/proc/net/snmp` (a line of names, then one of numbers) and `/proc/net/snmp6` (a name and a number
/// on each line).
pub(crate) fn attempts(snmp: &str, snmp6: &str) -> u64 {
    let four = ["Ip: OutNoRoutes", "Udp: NoPorts"].map(|wanted| {
        let (protocol, name) = wanted.split_once(' ').unwrap_or((wanted, ""));
        let mut lines = snmp.lines().filter(|line| line.starts_with(protocol));
        let (names, numbers) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
        names
            .split_whitespace()
            .zip(numbers.split_whitespace())
            .find(|(column, _)| *column == name)
            .and_then(|(_, number)| number.parse().ok())
            .unwrap_or(0)
    });
    let six = ["Ip6OutNoRoutes", "Udp6NoPorts"].map(|name| {
        snmp6
            .lines()
            .filter_map(|line| line.split_once(char::is_whitespace))
            .find(|(column, _)| *column == name)
            .and_then(|(_, number)| number.trim().parse().ok())
            .unwrap_or(0)
    });
    four.into_iter().chain(six).fold(0_u64, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "\
Ip: Forwarding DefaultTTL InReceives OutNoRoutes ReasmTimeout
Ip: 2 64 8 3 0
Icmp: InMsgs OutNoRoutes
Icmp: 9 9
Udp: InDatagrams NoPorts InErrors
Udp: 0 4 0
UdpLite: InDatagrams NoPorts InErrors
UdpLite: 0 9 0
";

    #[test]
    fn unroutable_packets_and_unanswered_resolvers_are_counted() {
        let six = "Ip6InNoRoutes    \t9\nIp6OutNoRoutes  \t1\nUdp6NoPorts     \t2\n";
        assert_eq!(attempts(SNMP, six), 3 + 4 + 1 + 2);
    }

    #[test]
    fn a_kernel_without_these_counters_counts_nothing() {
        assert_eq!(attempts("", ""), 0);
        assert_eq!(attempts("Ip: OutNoRoutes\n", "Ip6OutNoRoutes\n"), 0);
    }
}
