//! The network without one: hostile cases 61 to 63, 65 and 66.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::thread;
use std::time::Duration;

use crate::bait;
use crate::sys::call;
use crate::verdict::{Findings, Verdict};

const PATIENCE: Duration = Duration::from_secs(1);
/// `IPPROTO_MPTCP`.
const MULTIPATH: i32 = 262;

fn loopbacks() -> [IpAddr; 2] {
    [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
}

pub(crate) fn network() -> Verdict {
    let mut findings = Findings::new();
    let port = bait::port();
    for address in loopbacks() {
        findings.attempt(&format!("the host's {address}"), || {
            let address = SocketAddr::new(address, port);
            TcpStream::connect_timeout(&address, PATIENCE).map(drop)
        });
    }
    let name = bait::told("ABSTRACT").unwrap_or_default();
    findings.attempt("the host's abstract socket", || {
        UnixStream::connect_addr(&UnixAddr::from_abstract_name(&name)?).map(drop)
    });
    let interfaces = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    for line in interfaces.lines().skip(2) {
        let name = line.split(':').next().unwrap_or_default().trim();
        findings.unless(name != "lo", format!("there is an interface {name}"));
    }
    for route in ["/proc/net/route", "/proc/net/ipv6_route"] {
        let text = fs::read_to_string(route).unwrap_or_default();
        let is_outward = |line: &&str| !line.ends_with("lo") && !line.starts_with("Iface");
        let count = text
            .lines()
            .filter(|line| is_outward(&line.trim_end()))
            .count();
        findings.unless(count > 0, format!("{route} has {count} routes"));
    }
    findings.attempt("a route to another network", || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))
    });
    findings.verdict()
}

/// Families, kinds and protocols of sockets that no job needs.
const FAMILIES: &[(&str, i32, i32, i32)] = &[
    ("ALG", libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
    ("VSOCK", libc::AF_VSOCK, libc::SOCK_STREAM, 0),
    ("PACKET", libc::AF_PACKET, libc::SOCK_RAW, 0),
    ("KEY", libc::AF_KEY, libc::SOCK_RAW, 2),
    ("RXRPC", libc::AF_RXRPC, libc::SOCK_DGRAM, 2),
    ("XDP", libc::AF_XDP, libc::SOCK_RAW, 0),
    ("TIPC", libc::AF_TIPC, libc::SOCK_RDM, 0),
    ("RDS", libc::AF_RDS, libc::SOCK_SEQPACKET, 0),
    ("BLUETOOTH", libc::AF_BLUETOOTH, libc::SOCK_RAW, 1),
    ("CAN", libc::AF_CAN, libc::SOCK_RAW, 1),
    ("NFC", libc::AF_NFC, libc::SOCK_RAW, 1),
    ("SMC", 43, libc::SOCK_STREAM, 0),
    ("QIPCRTR", 42, libc::SOCK_DGRAM, 0),
    ("KCM", 41, libc::SOCK_DGRAM, 0),
    ("MCTP", 45, libc::SOCK_DGRAM, 0),
    ("PHONET", libc::AF_PHONET, libc::SOCK_DGRAM, 0),
    ("IEEE802154", libc::AF_IEEE802154, libc::SOCK_RAW, 0),
    ("IPX", libc::AF_IPX, libc::SOCK_DGRAM, 0),
    ("APPLETALK", libc::AF_APPLETALK, libc::SOCK_DGRAM, 0),
    ("AX25", libc::AF_AX25, libc::SOCK_DGRAM, 0),
    ("X25", libc::AF_X25, libc::SOCK_SEQPACKET, 0),
    ("PPPOX", libc::AF_PPPOX, libc::SOCK_STREAM, 0),
    ("LLC", libc::AF_LLC, libc::SOCK_STREAM, 0),
    ("netlink USERSOCK", libc::AF_NETLINK, libc::SOCK_RAW, 2),
    ("netlink DIAG", libc::AF_NETLINK, libc::SOCK_RAW, 4),
    ("netlink XFRM", libc::AF_NETLINK, libc::SOCK_RAW, 6),
    ("netlink AUDIT", libc::AF_NETLINK, libc::SOCK_RAW, 9),
    ("netlink CONNECTOR", libc::AF_NETLINK, libc::SOCK_RAW, 11),
    ("netlink NETFILTER", libc::AF_NETLINK, libc::SOCK_RAW, 12),
    ("netlink UEVENT", libc::AF_NETLINK, libc::SOCK_RAW, 15),
    ("netlink GENERIC", libc::AF_NETLINK, libc::SOCK_RAW, 16),
    ("netlink CRYPTO", libc::AF_NETLINK, libc::SOCK_RAW, 21),
    ("raw ICMP", libc::AF_INET, libc::SOCK_RAW, 1),
    ("raw ICMPv6", libc::AF_INET6, libc::SOCK_RAW, 58),
    ("raw IP", libc::AF_INET, libc::SOCK_RAW, 255),
];

pub(crate) fn socket_families() -> Verdict {
    let mut findings = Findings::new();
    for (name, family, kind, protocol) in FAMILIES {
        findings.attempt(name, || {
            call!(libc::SYS_socket, *family, *kind, *protocol).map(drop)
        });
        findings.attempt(&format!("a pair of {name}"), || {
            let mut pair = [0_i32; 2];
            call!(libc::SYS_socketpair, *family, *kind, *protocol, &mut pair).map(drop)
        });
    }
    // What a filter would have to know apart: numbers that no family has, up to the greatest.
    for family in [0, 7, 11, 46, 47, 255, i32::MAX, -1] {
        findings.attempt(&format!("family {family}"), || {
            call!(libc::SYS_socket, family, libc::SOCK_RAW, 0).map(drop)
        });
    }
    findings.verdict()
}

/// Bytes of a `sockaddr_in` for 127.0.0.1 at this port.
fn loopback_address(port: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    let family = u16::try_from(libc::AF_INET).unwrap_or_default();
    bytes[..2].copy_from_slice(&family.to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&Ipv4Addr::LOCALHOST.octets());
    bytes
}

pub(crate) fn other_transports() -> Verdict {
    let mut findings = Findings::new();
    let port = bait::port();
    for address in loopbacks() {
        findings.attempt(&format!("datagrams to the host's {address}"), || {
            let unspecified: IpAddr = if address.is_ipv4() {
                Ipv4Addr::UNSPECIFIED.into()
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            };
            let socket = UdpSocket::bind((unspecified, 0))?;
            socket.connect((address, port))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.send(b"probe")?;
            // An answer, or the kernel's word that nobody listens.
            socket.recv(&mut [0; 16]).map(drop)
        });
    }
    findings.attempt("TCP over several paths", || {
        let socket = call!(
            libc::SYS_socket,
            libc::AF_INET,
            libc::SOCK_STREAM,
            MULTIPATH
        )?;
        call!(libc::SYS_connect, socket, &loopback_address(port), 16).map(drop)
    });
    findings.attempt("TCP with data in its first packet", || {
        const FAST_OPEN: i32 = 0x2000_0000;
        let socket = call!(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0)?;
        let to = loopback_address(port);
        call!(libc::SYS_sendto, socket, b"x", 1, FAST_OPEN, &to, 16)?;
        let socket = i32::try_from(socket).map_err(io::Error::other)?;
        call!(
            libc::SYS_getpeername,
            socket,
            &mut [0_u8; 16],
            &mut [16_u32]
        )
        .map(drop)
    });
    findings.verdict()
}

/// Where clouds hand out credentials.
const METADATA: &[IpAddr] = &[
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

pub(crate) fn metadata_services() -> Verdict {
    let mut findings = Findings::new();
    for address in METADATA {
        // A route is enough of a hole. No packet is sent.
        findings.attempt(&format!("a route to {address}"), || {
            let unspecified: IpAddr = if address.is_ipv4() {
                Ipv4Addr::UNSPECIFIED.into()
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            };
            UdpSocket::bind((unspecified, 0))?.connect((*address, 80))
        });
    }
    findings.verdict()
}

/// Listens where others could come in, says so, and accepts for a while.
pub(crate) fn open_port() -> Verdict {
    let port = env::var("PROBE_PORT")
        .ok()
        .and_then(|text| text.parse().ok());
    let listener = match TcpListener::bind((Ipv4Addr::UNSPECIFIED, port.unwrap_or(0))) {
        Ok(listener) => listener,
        Err(error) => return Verdict::Absent(format!("nothing listens: {error}")),
    };
    let line = format!("{}\n", Verdict::Safe("listening".to_owned()));
    // Whoever waits for this line reads it at once.
    drop(io::stdout().write_all(line.as_bytes()));
    thread::spawn(move || listener.incoming().for_each(drop));
    thread::sleep(Duration::from_secs(60));
    Verdict::Absent("nobody ended it".to_owned())
}
