//! From the table to a program of classic BPF, as seccomp(2) takes it.
//!
//! The calls are found by a binary search over ranges of their numbers, not one after the other: the
//! kernel runs the whole program once per call number when a filter is installed, to note which are
//! always allowed, and that is most of what a filter costs at a job's start.

use std::collections::BTreeMap;

use super::table::{Case, Group, Rule, Test, Verdict};

/// The architecture of `struct seccomp_data`, as `AUDIT_ARCH_X86_64` in linux/audit.h.
const ARCHITECTURE: u32 = 0xC000_003E;
/// Numbers from here on are those of the x32 interface.
const X32_NUMBERS: u32 = 0x4000_0000;
/// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;
/// A conditional jump reaches this far; a longer way goes over an unconditional one.
const JUMP_MAX: usize = 255;

/// Where the answers of the filter go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusals {
    /// To process 1, which answers EPERM and takes notes.
    Told,
    /// Straight back, on kernels that have no such notifications.
    Silent,
}

/// The tables that one program is made from. A rule decides about a call that is in a list too, and the
/// last of several rules about one call.
#[derive(Debug)]
pub(super) struct Tables<'a> {
    pub(super) allowed: Vec<&'a Group>,
    pub(super) refused: Vec<&'a Group>,
    pub(super) rules: Vec<&'a Rule>,
}

impl Tables<'_> {
    /// The program.
    pub(super) fn compile(&self, refusals: Refusals) -> Vec<libc::sock_filter> {
        let mut code = Assembler::new(refusals);
        let mut targets: BTreeMap<u32, Place> = BTreeMap::new();
        for (groups, verdict) in [
            (&self.allowed, Verdict::Allow),
            (&self.refused, Verdict::Refuse),
        ] {
            let place = code.verdict(verdict);
            for call in groups.iter().flat_map(|group| group.calls) {
                targets.insert(number(call.number), place);
            }
        }
        for rule in &self.rules {
            let place = code.cases(rule.cases);
            targets.insert(number(rule.call.number), place);
        }
        let ranges = ranges(&targets, code.verdict(Verdict::Unknown));
        let search = code.search(&ranges);
        code.finish(search)
    }
}

fn number(call: i64) -> u32 {
    u32::try_from(call).expect("call numbers are small")
}

/// The first number of each range of numbers that go to one place, which is `otherwise` for numbers
/// that are in no list.
fn ranges(targets: &BTreeMap<u32, Place>, otherwise: Place) -> Vec<(u32, Place)> {
    let mut ranges = vec![(0, otherwise)];
    for (number, place) in targets {
        for (start, place) in [(*number, *place), (*number + 1, otherwise)] {
            if ranges.last().is_some_and(|(last, _)| *last == start) {
                ranges.pop();
            }
            if ranges.last().is_none_or(|(_, before)| *before != place) {
                ranges.push((start, place));
            }
        }
    }
    ranges
}

/// An instruction, by how many come after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place(usize);

/// Builds a program from its end, because BPF jumps forward only.
struct Assembler {
    reversed: Vec<libc::sock_filter>,
    verdicts: BTreeMap<Verdict, Place>,
}

impl Assembler {
    fn new(refusals: Refusals) -> Self {
        let mut code = Self {
            reversed: Vec::new(),
            verdicts: BTreeMap::new(),
        };
        let errno = |number: i32| libc::SECCOMP_RET_ERRNO | number.cast_unsigned();
        let (note, refuse) = match refusals {
            Refusals::Told => (libc::SECCOMP_RET_USER_NOTIF, libc::SECCOMP_RET_USER_NOTIF),
            Refusals::Silent => (libc::SECCOMP_RET_ALLOW, errno(libc::EPERM)),
        };
        for (verdict, answer) in [
            (Verdict::Allow, libc::SECCOMP_RET_ALLOW),
            (Verdict::Note, note),
            (Verdict::Refuse, refuse),
            (Verdict::NoMemory, errno(libc::ENOMEM)),
            (Verdict::Invalid, errno(libc::EINVAL)),
            (Verdict::NotSupported, errno(libc::EOPNOTSUPP)),
            (Verdict::NoSuchFamily, errno(libc::EAFNOSUPPORT)),
            (Verdict::Unknown, errno(libc::ENOSYS)),
        ] {
            let place = code.push(libc::BPF_RET | libc::BPF_K, 0, 0, answer);
            code.verdicts.insert(verdict, place);
        }
        code
    }

    fn verdict(&self, verdict: Verdict) -> Place {
        self.verdicts[&verdict]
    }

    fn push(&mut self, operation: u32, jt: u8, jf: u8, k: u32) -> Place {
        let code = u16::try_from(operation).expect("an operation code has 16 bits");
        self.reversed.push(libc::sock_filter { code, jt, jf, k });
        Place(self.reversed.len() - 1)
    }

    fn load(&mut self, offset: u32) -> Place {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
    }

    /// The distance from the instruction that is pushed next.
    fn distance(&self, to: Place) -> usize {
        self.reversed.len() - to.0 - 1
    }

    fn jump(&mut self, condition: u32, k: u32, mut yes: Place, mut no: Place) -> Place {
        // One more instruction may come in between for each of the two.
        for target in [&mut yes, &mut no] {
            if self.distance(*target) + 1 > JUMP_MAX {
                let way = u32::try_from(self.distance(*target)).expect("programs are short");
                *target = self.push(libc::BPF_JMP | libc::BPF_JA, 0, 0, way);
            }
        }
        let near = |distance: usize| u8::try_from(distance).expect("the way was shortened");
        let (jt, jf) = (near(self.distance(yes)), near(self.distance(no)));
        self.push(libc::BPF_JMP | condition | libc::BPF_K, jt, jf, k)
    }

    /// Tests one case after the other. What none holds for is allowed.
    fn cases(&mut self, cases: &[Case]) -> Place {
        let mut next = self.verdict(Verdict::Allow);
        for case in cases.iter().rev() {
            let otherwise = next;
            next = self.verdict(case.verdict);
            for test in case.tests.iter().rev() {
                let (argument, condition, k) = match *test {
                    Test::Has { argument, bits } => (argument, libc::BPF_JSET, bits),
                    Test::Is { argument, value } => (argument, libc::BPF_JEQ, value),
                };
                self.jump(condition, k, next, otherwise);
                next = self.load(ARGUMENTS_AT + 8 * u32::from(argument));
            }
        }
        next
    }

    /// Finds the range of the loaded number.
    fn search(&mut self, ranges: &[(u32, Place)]) -> Place {
        match ranges {
            [] => self.verdict(Verdict::Unknown),
            [(_, place)] => *place,
            _ => {
                let (lower, upper) = ranges.split_at(ranges.len() / 2);
                let above = self.search(upper);
                let below = self.search(lower);
                self.jump(libc::BPF_JGE, upper[0].0, above, below)
            }
        }
    }

    /// Adds the beginning: which interface the call came through, and its number.
    fn finish(mut self, search: Place) -> Vec<libc::sock_filter> {
        let unknown = self.verdict(Verdict::Unknown);
        self.jump(libc::BPF_JGE, X32_NUMBERS, unknown, search);
        let begin = self.load(NUMBER_AT);
        let foreign = self.push(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_KILL_PROCESS,
        );
        self.jump(libc::BPF_JEQ, ARCHITECTURE, begin, foreign);
        self.load(ARCHITECTURE_AT);
        self.reversed.reverse();
        self.reversed
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::super::table::{
        ALLOWED, MEASURED_RULES, NAMESPACED, PRIVATE_RULES, REFUSED, RULES, WRITING_RULES,
    };
    use super::*;

    /// Runs a program as the kernel does.
    fn run(
        program: &[libc::sock_filter],
        architecture: u32,
        number: u32,
        arguments: [u64; 6],
    ) -> u32 {
        let mut data = Vec::new();
        data.extend(number.to_le_bytes());
        data.extend(architecture.to_le_bytes());
        data.extend(0_u64.to_le_bytes());
        for argument in arguments {
            data.extend(argument.to_le_bytes());
        }
        let (mut at, mut loaded) = (0, 0);
        loop {
            let line = program[at];
            let (class, k) = (u32::from(line.code), line.k);
            at += 1;
            let condition = class & !(libc::BPF_JMP | libc::BPF_K);
            if class == libc::BPF_RET | libc::BPF_K {
                return k;
            } else if class == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS {
                let word = &data[k as usize..k as usize + 4];
                loaded = u32::from_le_bytes(word.try_into().unwrap());
            } else if class == libc::BPF_JMP | libc::BPF_JA {
                at += k as usize;
            } else {
                let holds = match condition {
                    libc::BPF_JEQ => loaded == k,
                    libc::BPF_JGE => loaded >= k,
                    libc::BPF_JSET => loaded & k != 0,
                    other => panic!("operation {other}"),
                };
                at += usize::from(if holds { line.jt } else { line.jf });
            }
        }
    }

    fn program(refusals: Refusals) -> Vec<libc::sock_filter> {
        program_with(WRITING_RULES, refusals)
    }

    fn program_with(more: &[Rule], refusals: Refusals) -> Vec<libc::sock_filter> {
        Tables {
            allowed: ALLOWED.iter().collect(),
            refused: REFUSED.iter().chain(NAMESPACED).collect(),
            rules: RULES.iter().chain(more).chain(MEASURED_RULES).collect(),
        }
        .compile(refusals)
    }

    /// What the table says, looked up without any search.
    fn expected(more: &[Rule], number: u32, arguments: [u64; 6]) -> u32 {
        let low = |argument: u8| u32::try_from(arguments[argument as usize] & 0xFFFF_FFFF).unwrap();
        let verdict = RULES
            .iter()
            .chain(more)
            .chain(MEASURED_RULES)
            .find(|rule| rule.call.number == i64::from(number))
            .map(|rule| {
                rule.cases
                    .iter()
                    .find(|case| {
                        case.tests.iter().all(|test| match *test {
                            Test::Has { argument, bits } => low(argument) & bits != 0,
                            Test::Is { argument, value } => low(argument) == value,
                        })
                    })
                    .map_or(Verdict::Allow, |case| case.verdict)
            })
            .or_else(|| {
                let has = |groups: &[Group]| {
                    groups
                        .iter()
                        .flat_map(|group| group.calls)
                        .any(|call| call.number == i64::from(number))
                };
                (has(REFUSED) || has(NAMESPACED))
                    .then_some(Verdict::Refuse)
                    .or_else(|| has(ALLOWED).then_some(Verdict::Allow))
            })
            .unwrap_or(Verdict::Unknown);
        match verdict {
            Verdict::Allow => libc::SECCOMP_RET_ALLOW,
            Verdict::Note | Verdict::Refuse => libc::SECCOMP_RET_USER_NOTIF,
            Verdict::NoMemory => libc::SECCOMP_RET_ERRNO | libc::ENOMEM.cast_unsigned(),
            Verdict::Invalid => libc::SECCOMP_RET_ERRNO | libc::EINVAL.cast_unsigned(),
            Verdict::NotSupported => libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP.cast_unsigned(),
            Verdict::NoSuchFamily => libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT.cast_unsigned(),
            Verdict::Unknown => libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned(),
        }
    }

    fn pairs(values: &[u64]) -> Vec<(u64, u64)> {
        let each = |first: u64| values.iter().map(move |second| (first, *second));
        values.iter().flat_map(|first| each(*first)).collect()
    }

    #[test]
    fn every_number_gets_what_the_table_says() {
        let values = [
            0,
            1,
            2,
            3,
            4,
            10,
            16,
            0x1000_0000,
            0x80,
            0o4755,
            0o2755,
            0o755,
            0x40,
            0x40022,
            u64::from(u32::MAX),
            1 << 32 | libc::TIOCSTI,
            libc::TIOCSTI,
        ];
        for more in [WRITING_RULES, PRIVATE_RULES] {
            let program = program_with(more, Refusals::Told);
            for number in 0..1024 {
                for (first, second) in pairs(&values) {
                    let arguments = [first, second, second, first, 0, 0];
                    assert_eq!(
                        run(&program, ARCHITECTURE, number, arguments),
                        expected(more, number, arguments),
                        "call {number} {arguments:x?}"
                    );
                }
            }
        }
    }

    #[test]
    fn foreign_interfaces_are_shut() {
        let program = program(Refusals::Told);
        let i386 = 0x4000_0003;
        let killed = libc::SECCOMP_RET_KILL_PROCESS;
        assert_eq!(run(&program, i386, 1, [0; 6]), killed);
        let unknown = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
        assert_eq!(run(&program, ARCHITECTURE, X32_NUMBERS, [0; 6]), unknown);
        assert_eq!(run(&program, ARCHITECTURE, u32::MAX, [0; 6]), unknown);
    }

    #[test]
    fn without_notifications_a_refusal_is_an_error_number() {
        let program = program(Refusals::Silent);
        let mount = u32::try_from(libc::SYS_mount).unwrap();
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
        assert_eq!(run(&program, ARCHITECTURE, mount, [0; 6]), refused);
    }

    #[test]
    fn the_search_is_short() {
        assert!(program(Refusals::Told).len() < 512);
    }
}
