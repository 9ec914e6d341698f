//! Help, man pages and completions, and whether the pages of docs/ agree with them.

use std::path::Path;

use crate::process::{Notes, With, bare, outcome};

/// The output of `dlock` with these arguments.
#[track_caller]
fn text(arguments: &[&str]) -> String {
    let outcome = outcome(bare().with(arguments));
    assert_eq!(outcome.code, Some(0), "{arguments:?}: {}", outcome.stderr);
    outcome.stdout
}

const COMMANDS: [&str; 18] = [
    "uninstall",
    "run",
    "acquire",
    "renew",
    "info",
    "ls",
    "watch",
    "log",
    "graph",
    "metrics",
    "top",
    "release",
    "break",
    "failover",
    "agent",
    "serve",
    "completions",
    "man",
];

/// The text of all pages that describe subcommands.
fn page() -> String {
    let pages = ["run.md", "cli.md", "agent.md", "serve.md"].map(|page| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
        std::fs::read_to_string(path).expect("a page")
    });
    pages.concat()
}

#[test]
fn help_shows_every_command_and_examples() {
    let help = text(&["--help"]);
    for command in COMMANDS {
        assert!(help.lines().any(|line| line.trim_start().starts_with(&format!("{command} "))), "{command} in {help}");
    }
    assert!(text(&["run", "--help"]).contains("Examples:\n  dlock run backup -- "));
    assert!(text(&["--version"]).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_begins_with_examples_and_has_headings() {
    let help = text(&["run", "-h"]);
    let parts = ["Examples:\n", "Usage: ", "Locking:\n", "Waiting:\n", "How often:\n", "Connection:\n", "Quorum:\n"];
    let places: Vec<_> =
        parts.iter().map(|part| help.find(part).unwrap_or_else(|| panic!("{part} in {help}"))).collect();
    assert!(places.is_sorted(), "{help}");
    for (option, heading) in
        [("-w, --wait", "Waiting"), ("--limit", "Locking"), ("--once", "How often"), ("-s, --server", "Connection")]
    {
        let section = help.split(&format!("\n{heading}:\n")).nth(1).and_then(|rest| rest.split("\n\n").next());
        assert!(section.is_some_and(|section| section.contains(option)), "{option} below {heading}: {help}");
    }
    // `-h` has one line for each option, of 150 characters at most. `--help` has the rest.
    let options = help.split("\nLocking:\n").nth(1).and_then(|rest| rest.split("\nTimes: ").next()).expect("options");
    let lines = options.lines().filter(|line| !line.is_empty() && !line.ends_with(':'));
    for line in lines {
        assert!(line.trim_start().starts_with('-') && line.chars().count() <= 150, "{line}");
    }
    assert!(text(&["run", "--help"]).contains("KILL at least 1 s earlier"));
    for command in [&["-h"][..], &["--help"], &["acquire", "-h"]] {
        let help = text(command);
        assert!(help.find("Examples:\n") < help.find("Usage: ") && help.contains("Examples:\n"), "{help}");
    }
}

#[test]
fn the_page_has_every_command_option_and_exit_code() {
    let page = page();
    for command in COMMANDS {
        assert!(page.contains(&format!("dlock {command}")), "{command}");
        let help = text(&[command, "--help"]);
        let lines = help.lines().map(str::trim).filter(|line| line.starts_with('-'));
        for option in lines.filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--"))) {
            let option = option.split(['[', '=']).next().unwrap_or_default();
            assert!(["--help", "--version"].contains(&option) || page.contains(option), "{option} of {command}");
        }
    }
    let help = text(&["run", "--help"]);
    let codes =
        help.lines().skip_while(|line| !line.starts_with("Exit code")).skip(1).take_while(|line| !line.is_empty());
    let mut seen = 0;
    for line in codes {
        let code = line.split_whitespace().next().expect("a code");
        assert!(page.contains(&format!("| {code} |")), "{code}");
        seen += 1;
    }
    assert_eq!(seen, 7, "the number of exit codes in the help");
}

#[test]
fn every_subcommand_has_a_man_page() {
    let notes = Notes::new();
    let page = text(&["man"]);
    assert!(page.contains(".TH dlock 1") && page.contains("DLOCK_URL"), "{page}");
    text(&["man", notes.path("").to_str().expect("a path")]);
    for command in COMMANDS {
        assert!(notes.read(&format!("dlock-{command}.1")).contains(".SH NAME"), "{command}");
    }
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&["completions", shell]);
        assert!(COMMANDS.iter().all(|command| script.contains(command)), "{shell}");
    }
    let notes = Notes::new();
    std::fs::write(notes.path("dlock.bash"), text(&["completions", "bash"])).expect("a file");
    let ask = ". \"$0\"; COMP_WORDS=(dlock ru); COMP_CWORD=1; _dlock dlock ru dlock; echo \"${COMPREPLY[@]}\"";
    let mut bash = std::process::Command::new("bash");
    bash.args(["-c", ask]).arg(notes.path("dlock.bash"));
    assert_eq!(outcome(bash).stdout.trim(), "run");
}

/// The names of the events that docs/commands/log.md lists.
pub fn events() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands/log.md");
    let page = std::fs::read_to_string(path).expect("a page");
    let table = page.split("## Events").nth(1).and_then(|rest| rest.split("\n- ").next()).expect("a table");
    let events: Vec<_> = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(events.len(), 10, "{events:?}");
    events.into_iter().map(str::to_owned).collect()
}

#[test]
fn troubleshooting_explains_every_event_that_ends_a_hold_without_its_owner() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/troubleshooting.md");
    let page = std::fs::read_to_string(path).expect("a page");
    let commands: Vec<_> = page.lines().filter(|line| line.contains("--event lapse,")).collect();
    let section = page.split("## Two at once").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("a section");
    for event in events().iter().filter(|event| !["wait", "timeout", "hold", "deadlock"].contains(&event.as_str())) {
        let names = |line: &&&str| line.split([' ', ',']).any(|word| word == event);
        // At least two of the commands on the page that list such events name the event.
        assert!(commands.iter().filter(names).count() >= 2, "{event} in {commands:#?}");
        assert!(section.contains(&format!("\n| `{event}` |")), "what {event} means");
    }
}

#[test]
fn every_subcommand_begins_with_examples_and_ends_with_its_exit_codes() {
    for command in COMMANDS {
        for flag in ["-h", "--help"] {
            let help = text(&[command, flag]);
            let [examples, usage] = ["Examples:\n", "Usage: "].map(|part| help.find(part));
            assert!(examples.is_some() && examples < usage, "{command} {flag}: {help}");
            let codes = help.split("\nExit code").nth(1).unwrap_or_else(|| panic!("{command} {flag}: {help}"));
            assert!(codes.split_whitespace().any(|word| word == "64"), "{command} {flag}: {codes}");
        }
        let is_quorum = ["run", "agent"].contains(&command);
        let help = text(&[command, "--help"]);
        assert_eq!(help.contains("\nQuorum:\n"), is_quorum, "{command}: {help}");
    }
    // A known command has help. No command, or one that does not exist, is a mistake.
    for (words, code) in [(&["help"][..], 0), (&["help", "run"], 0), (&["help", "foo"], 64), (&[], 64), (&["foo"], 64)]
    {
        assert_eq!(outcome(bare().with(words)).code, Some(code), "{words:?}");
    }
}

#[test]
fn a_refused_command_line_shows_the_usage_of_the_help_and_explains_the_name() {
    for command in ["info", "acquire", "renew", "release", "break", "watch"] {
        let mut line = bare().with([command]);
        line.env("DLOCK_URL", "redis://127.0.0.1:1").env("DLOCK_CACERT", "ca.pem");
        let refused = outcome(line);
        assert_eq!(refused.code, Some(64), "{command}");
        let usage = |text: &str| text.lines().find(|line| line.starts_with("Usage: ")).map(str::to_owned);
        assert_eq!(usage(&refused.stderr), usage(&text(&[command, "-h"])), "{command}");
        assert!(refused.stderr.contains("NAME is the lock. Any name will do"), "{}", refused.stderr);
    }
    let twice = outcome(bare().with(["run", "-k", "a", "-k", "b", "-k", "a", "--", "true"]));
    assert_eq!((twice.code, twice.stderr.as_str()), (Some(64), "dlock: -k a is given twice\n"));
}
