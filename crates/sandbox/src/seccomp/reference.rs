//! The table of system calls as a page of the documentation.

use super::table::{
    ALLOWED, Group, LEFT_OUT, MEASURED_RULES, NAMESPACE_RULES, NAMESPACED, PRIVATE_RULES, REFUSED,
    RULES, Rule, WRITING_RULES,
};

/// The reference page of system calls, in Markdown, made from the table that the filter is made from.
pub fn system_calls_reference() -> String {
    let mut page = String::from(
        "# System calls\n\n\
         <!-- Made from the table of crates/sandbox/src/seccomp/table.rs; a test keeps them equal. -->\n\n\
         What a job in the syscall tier may ask of the kernel (x86-64). A call that is in no list here\n\
         answers ENOSYS, as on a kernel that is too old to know it. Calls through another interface\n\
         are shut: 32-bit calls (`int 0x80`) end the process, x32 numbers answer ENOSYS. Arguments are\n\
         compared in the width in which the kernel reads them.\n\n\
         Process 1 hears of refused calls, and of new sockets, through a notification of the filter. The\n\
         kernel allows one listener in a chain of filters, so a job's own filter cannot have one (EBUSY).\n\n",
    );
    page.push_str(
        "## Refused\n\nThe answer is EPERM, and the job's log says which call it was.\n\n",
    );
    table(&mut page, REFUSED);
    page.push_str("Refused too, unless the job has `--grant userns`:\n\n");
    table(&mut page, NAMESPACED);
    page.push_str("## Judged by their arguments\n\n| Call | What is allowed |\n| --- | --- |\n");
    rules(&mut page, RULES);
    page.push_str(
        "\nWith `--grant userns` these calls are allowed, but where the control groups of the job belong to the\n\
         caller (a user to whom groups are delegated):\n\n\
         | Call | What is allowed |\n| --- | --- |\n",
    );
    rules(&mut page, NAMESPACE_RULES);
    page.push_str(
        "\nWhere all that a job writes is its own, these are judged too, unless it is root by name (`--user 0`):\n\
         then it may be an installer that unpacks a whole system.\n\n\
         | Call | What is allowed |\n| --- | --- |\n",
    );
    rules(&mut page, PRIVATE_RULES);
    page.push_str(
        "\nWhere a job writes to the host's own files (`--write`), these are judged in their place:\n\n\
         | Call | What is allowed |\n| --- | --- |\n",
    );
    rules(&mut page, WRITING_RULES);
    page.push_str(
        "\nWhere what a job writes lies on a disk (`--disk` of more than half of the memory):\n\n\
         | Call | What is allowed |\n| --- | --- |\n",
    );
    rules(&mut page, MEASURED_RULES);
    page.push_str("\n## Left out on purpose\n\nThe answer is ENOSYS.\n\n");
    table(&mut page, LEFT_OUT);
    page.push_str("## Allowed\n\n");
    table(&mut page, ALLOWED);
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn table(page: &mut String, groups: &[Group]) {
    page.push_str("| Why | Calls |\n| --- | --- |\n");
    for group in groups {
        let names: Vec<String> = group
            .calls
            .iter()
            .map(|call| format!("`{}`", call.name()))
            .collect();
        row(page, group.why, &names.join(", "));
    }
    page.push('\n');
}

fn rules(page: &mut String, rules: &[Rule]) {
    for rule in rules {
        row(page, &format!("`{}`", rule.call.name()), rule.why);
    }
}

fn row(page: &mut String, first: &str, second: &str) {
    page.extend(["| ", first, " | ", second, " |\n"]);
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// With TIDEMILL_UPDATE set in the environment the page is written instead of compared.
    #[test]
    fn the_page_in_the_documentation_is_the_table() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/system-calls.md"
        );
        if std::env::var_os("TIDEMILL_UPDATE").is_some() {
            std::fs::write(path, system_calls_reference()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(page, system_calls_reference());
    }
}
