//! The README, the pages in docs/ and the demo say what the module does: their sessions are replayed, their lists are
//! complete.

mod errors;
pub mod page;
mod same;
mod terminal;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use redis::Value;

use crate::support::lock::fields_of;
use crate::support::process::{die_with_the_tests, free_port, module_path, spawn};
use crate::support::replica::{counter, info_field};
use crate::support::skip::skipped;
use crate::support::version::Version;
use crate::support::{Client, Server, int_of, list_of, soon, text_of};
use page::Page;
use same::Names;
use terminal::{Terminal, script};

/// Plays the sessions of a page on a server of their own, and compares.
#[track_caller]
fn replay(page: &Page) {
    let server = Server::start();
    let (mut client, mut names, mut waiting) = (server.client(), Names::default(), VecDeque::<Terminal>::new());
    for library in page.libraries() {
        client.run(["FUNCTION", "LOAD", &library]);
    }
    let compare = |names: &mut Names, written: &str, real: &str| {
        let where_ = page.path.display();
        names.compare(written, real).unwrap_or_else(|difference| panic!("{where_}:\n{difference}"));
    };
    for block in page.sessions() {
        let mut terminal = if block.late.is_empty() {
            Terminal::cli(server.port(), &block.options)
        } else {
            let mut terminal = waiting.pop_front().expect("a command that waits");
            compare(&mut names, &block.late, &terminal.reply());
            terminal
        };
        let mut waits = false;
        for step in &block.steps {
            assert!(!waits, "{}: no reply before {}", page.path.display(), step.command);
            let command = names.fill(&step.command);
            terminal.enter(&names.translate(&command));
            waits = step.reply.is_empty();
            if !waits {
                let real = format!("> {}\n{}", names.translate(&command), terminal.reply());
                compare(&mut names, &format!("> {command}\n{}", step.reply), &real);
            }
        }
        if waits {
            waiting.push_back(terminal);
            soon("it stands in line", || counter(&mut client, "waiters") == waiting.len() as i64);
        }
    }
    assert!(waiting.is_empty(), "{}: the reply of a command that waits is missing", page.path.display());
}

#[test]
fn the_readme_shows_what_redis_cli_shows() {
    let readme = Page::read("README.md");
    assert!(readme.sessions().len() > 1);
    replay(&readme);
}

/// The programs of README.md are taken from the pages of the packages, whose tests play them.
#[test]
fn the_programs_of_the_readme_are_those_of_the_packages() {
    let readme = Page::read("README.md");
    for (language, page) in [("python", "python"), ("js", "node"), ("go", "go")] {
        let programs = Page::read(format!("clients/{page}/README.md")).trimmed(language);
        let shown = readme.trimmed(language);
        assert_eq!(shown.len(), 1, "README.md shows one program in {language}");
        for lines in shown {
            let is_part = |program: &Vec<String>| program.windows(lines.len()).any(|part| part == lines);
            assert!(programs.iter().any(is_part), "README.md: clients/{page}/README.md does not have {lines:?}");
        }
    }
}

#[test]
fn the_pages_of_commands_show_what_redis_cli_shows() {
    for page in Page::all_in("docs/commands") {
        assert!(!page.sessions().is_empty(), "{} has an example", page.path.display());
        replay(&page);
    }
}

#[test]
fn the_other_pages_show_what_redis_cli_shows() {
    Page::all_in("docs").iter().for_each(replay);
}

#[test]
fn the_demo_shows_what_its_transcript_has() {
    let played = script("demo").env("DLOCK_MODULE", module_path()).output().expect("scripts/demo");
    assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stderr));
    let real = String::from_utf8_lossy(&played.stdout);
    let compared = Names::default().compare(include_str!("../demo.txt"), &real);
    compared.unwrap_or_else(|difference| panic!("{difference}"));
}

/// The words of options in a list of arguments, at any depth.
fn options(arguments: &Value, found: &mut BTreeSet<String>) {
    for argument in list_of(arguments) {
        let fields: HashMap<_, _> = fields_of(&argument).into_iter().collect();
        found.extend(fields.get("token").map(text_of));
        if let Some(inner) = fields.get("arguments") {
            options(inner, found);
        }
    }
}

#[test]
fn every_command_has_a_page_with_all_its_options() {
    let (_server, mut client) = Server::start().with_client();
    let commands: BTreeSet<_> =
        list_of(&client.run("COMMAND LIST FILTERBY MODULE dlock")).iter().map(text_of).collect();
    let pages = Page::all_in("docs/commands");
    let known: BTreeSet<_> = pages.iter().map(|page| format!("dlock.{}", page.name())).collect();
    assert_eq!(known, commands);
    let acquire = Page::read("docs/commands/acquire.md");
    for page in pages {
        let command = format!("DLOCK.{}", page.name().to_uppercase());
        let docs = fields_of(&client.run(format!("COMMAND DOCS {command}")));
        let docs: HashMap<_, _> = fields_of(&docs[0].1).into_iter().collect();
        let mut expected = BTreeSet::from([command]);
        options(&docs["arguments"], &mut expected);
        let shown = words_in_capitals(&page.syntax());
        if page.syntax().contains("[option ...]") {
            // `option` stands for those of the page of `ACQUIRE`, to which the page links.
            assert!(page.linked().contains(&acquire.path), "{}", page.path.display());
            let all = &shown | &words_in_capitals(&acquire.syntax());
            assert!(shown.is_subset(&expected) && expected.is_subset(&all), "{}", page.path.display());
        } else {
            assert_eq!(shown, expected, "{}", page.path.display());
        }
    }
}

fn words_in_capitals(syntax: &str) -> BTreeSet<String> {
    let words = syntax.split(|c: char| !c.is_alphanumeric() && c != '.');
    let is_word = |word: &&str| word.contains(char::is_alphabetic) && word.to_uppercase() == **word;
    words.filter(is_word).map(str::to_owned).collect()
}

#[test]
fn every_setting_is_in_the_table_with_its_default_and_range() {
    let (_server, mut client) = Server::start().with_client();
    let real = list_of(&client.run("CONFIG GET dlock.*"));
    let real: BTreeSet<_> = real.chunks(2).map(|pair| (text_of(&pair[0]), text_of(&pair[1]))).collect();
    let rows = Page::read("docs/configuration.md").rows("dlock.");
    let shown: BTreeSet<_> = rows.iter().map(|cells| (cells[0].clone(), cells[1].clone())).collect();
    assert_eq!(shown, real);
    for cells in rows {
        let (low, high) = cells[2].split_once(" to ").expect("a range");
        assert_in_range(&mut client, &cells[0], [low, high].map(|bound| bound.parse().expect("a number")));
    }
}

#[track_caller]
fn assert_in_range(client: &mut Client, setting: &str, [low, high]: [i64; 2]) {
    for good in [low, high] {
        client.ok(format!("CONFIG SET {setting} {good}"));
    }
    for bad in [low - 1, high + 1] {
        client.error(format!("CONFIG SET {setting} {bad}"));
    }
}

#[test]
fn every_field_of_info_is_explained() {
    let server = Server::start();
    let info = text_of(&server.client().run("INFO dlock"));
    let real: BTreeSet<_> = info.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
    let rows = Page::read("docs/monitoring.md").rows("dlock_");
    let shown: BTreeSet<_> = rows.iter().map(|cells| cells[0].as_str()).collect();
    assert_eq!(shown, real);
    let version = info_field(&mut server.client(), "dlock", "dlock_version");
    assert_eq!(version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_index_links_to_every_page() {
    let index = Page::read("docs/README.md");
    let linked: BTreeSet<_> = index.linked().into_iter().collect();
    for page in Page::all_in("docs/commands").into_iter().chain(Page::all_in("docs")) {
        assert!(page.path == index.path || linked.contains(&page.path), "no link to {}", page.path.display());
    }
}

/// Each page of a command, and docs/permissions.md for all of them, name the categories that `COMMAND INFO` has.
#[test]
fn the_categories_on_the_pages_are_those_of_the_server() {
    let (_server, mut client) = Server::start().with_client();
    if !Version::of(&mut client).has_module_categories() {
        return skipped("this server has no categories for the commands of modules");
    }
    let named = |cell: &str| -> BTreeSet<String> {
        let cell = cell.split(';').next().expect("a first part");
        let words = cell.split(|c: char| !c.is_alphanumeric() && c != '@');
        words.filter(|word| word.starts_with('@')).map(str::to_owned).collect()
    };
    let permissions = Page::read("docs/permissions.md");
    for page in Page::all_in("docs/commands") {
        let name = page.name().to_uppercase();
        let info = list_of(&list_of(&client.run(format!("COMMAND INFO dlock.{name}")))[0]);
        let real: BTreeSet<_> = list_of(&info[6]).iter().map(text_of).collect();
        assert_eq!(named(&page.rows("ACL categories")[0][1]), real, "{}", page.path.display());
        let mut rows = permissions.rows("").into_iter();
        let row = rows.find(|cells| cells[1].contains('@') && cells[0].split(", ").any(|command| command == name));
        assert_eq!(named(&row.expect("a row of the command")[1]), real, "permissions.md: {name}");
    }
}

/// The table of docs/permissions.md: a rule that removes a category, and what to add on servers where our commands are
/// in no category.
#[test]
fn rules_without_categories_refuse_what_the_category_stands_for() {
    let (_server, mut client) = Server::start().with_client();
    let rows = Page::read("docs/permissions.md").rows("-@");
    let kinds: Vec<_> = rows.iter().map(|cells| cells[0].as_str()).collect();
    assert_eq!(kinds, ["-@write", "-@blocking", "-@read", "-@connection"]);
    for cells in rows {
        client.ok(format!("ACL SETUSER limited reset ~* +@all {} {}", cells[0], cells[1]));
        for page in Page::all_in("docs/commands") {
            let command = format!("dlock.{}", page.name());
            let info = list_of(&list_of(&client.run(format!("COMMAND INFO {command}")))[0]);
            let flags: Vec<_> = list_of(&info[2]).iter().map(text_of).collect();
            let is_refused = match cells[0].as_str() {
                "-@write" => flags.iter().any(|flag| flag == "write"),
                "-@read" => flags.iter().any(|flag| flag == "readonly"),
                "-@connection" => command == "dlock.session",
                _ => flags.iter().any(|flag| flag == "blocking"),
            };
            // No client may send the effect, whatever the rules say.
            if command != "dlock.apply" {
                let least = int_of(&info[1]).unsigned_abs() as usize;
                let arguments = ["1"].repeat(least - 1).join(" ");
                let answer = text_of(&client.run(format!("ACL DRYRUN limited {command} {arguments}")));
                assert_eq!(answer != "OK", is_refused, "{} and {command}: {answer}", cells[0]);
            }
        }
    }
}

/// The comments of docs/fencing.md say which statements change a row.
#[test]
fn the_statements_for_databases_reject_the_former_owner() {
    const PLAY: &str = r#"
import re, sqlite3, sys
page = open(sys.argv[1]).read()
database = sqlite3.connect(":memory:", isolation_level=None)
statements = [s for block in re.findall(r"```sql\n(.*?)```", page, re.S) for s in block.split(";") if s.strip()]
for statement in statements:
    done = database.execute(re.sub(r"--.*", "", statement))
    print(done.rowcount, statement.split("'")[1] if "'" in statement else "")
print(database.execute("SELECT body FROM report").fetchall(), done.fetchall())
"#;
    let page = page::root().join("docs/fencing.md");
    let played = std::process::Command::new("python3").args(["-c", PLAY]).arg(page).output().expect("python3");
    let said = String::from_utf8_lossy(&played.stdout);
    assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stderr));
    assert!(said.contains("\n1 of bob\n0 of alice\n"), "{said}");
    assert!(said.contains("\n1 report\n1 of bob, in a transaction\n"), "{said}");
    assert!(said.ends_with("[('of bob, in a transaction',)] [('of bob',)]\n"), "{said}");
}

#[test]
fn the_statement_for_a_row_rejects_a_lower_token() {
    const PLAY: &str = r#"
import re, sqlite3, sys
statement = re.search(r"```sql\n(.*?)```", open(sys.argv[1]).read(), re.S)[1]
database = sqlite3.connect(":memory:", isolation_level=None)
database.execute("CREATE TABLE report (id INTEGER, body TEXT, fence INTEGER)")
database.execute("INSERT INTO report VALUES (1, '', 0)")
print(*(database.execute(statement, {"id": 1, "body": "text", "token": token}).rowcount for token in (33, 34, 33, 34)))
"#;
    let page = page::root().join("docs/tokens.md");
    let played = std::process::Command::new("python3").args(["-c", PLAY]).arg(page).output().expect("python3");
    assert_eq!(String::from_utf8_lossy(&played.stdout), "1 1 0 1\n", "{}", String::from_utf8_lossy(&played.stderr));
}

/// `make run` builds the module and runs `scripts/run`.
#[test]
fn make_run_starts_a_server_and_says_what_to_type() {
    // The port may go to another test in between.
    let said = (0..5).find_map(|_| run_until_ready(free_port())).expect("a server that starts");
    assert!(said.contains("DLOCK.ACQUIRE job:1 alice PX 30000\n"), "{said}");
}

/// Starts `scripts/run` on a port, and returns what it has printed when it is ready. `None`: it ended.
fn run_until_ready(port: u16) -> Option<String> {
    let mut command = script("run");
    command.env("PORT", port.to_string()).env("DLOCK_MODULE", module_path()).stdout(Stdio::piped());
    die_with_the_tests(&mut command);
    let mut running = spawn(command);
    let (mut said, mut is_ready) = (String::new(), false);
    let mut lines = BufReader::new(running.stdout.take().expect("a pipe"));
    while !is_ready && lines.read_line(&mut said).expect("readable output") > 0 {
        is_ready = said.ends_with("Ctrl-C ends the server.\n");
    }
    assert!(!is_ready || said.contains(&format!("-p {port}\n")), "{said}");
    let _ = running.kill();
    running.wait().expect("a process of ours");
    is_ready.then_some(said)
}

/// Runs a check of texts on a page with this text, and returns what it finds.
fn found_by(check: &str, text: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("page.md");
    std::fs::write(&page, text).expect("a file");
    let output = script(check).arg(&page).output().expect("a check");
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.success(), found.is_empty(), "{found}{}", String::from_utf8_lossy(&output.stderr));
    found
}

#[test]
fn a_phrasing_that_readers_stumble_over_is_found() {
    for text in ["It comes\nto 5 ms.", "Good.\n\n- Who waits gets it.", "| a | b |\n|---|---|\n| What frees it | x |"] {
        assert!(found_by("check-words", text).contains("page.md:"), "{text}");
    }
    for text in
        ["It equals 5 ms.", "`it comes to 5`", "```text\nit comes to 5\n```", "What does it do?", "# What is new"]
    {
        assert_eq!(found_by("check-words", text), "", "{text}");
    }
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    for text in ["[a](missing.md)", "[a\nb](page.md#none)", "![a](none.svg)", "# A\n\n[a](#a-1)"] {
        assert!(found_by("check-links", text).contains("page.md:"), "{text}");
    }
    for text in ["# A `b` c\n\n[a](#a-b-c)", "# A\n\n# A\n\n[a](page.md#a-1)", "[a](https://example.com/x)", "`[a](b)`"]
    {
        assert_eq!(found_by("check-links", text), "", "{text}");
    }
}

#[test]
fn redis_cli_hints_while_one_types() {
    let server = Server::start();
    let mut terminal = Terminal::interactive_cli(server.port());
    terminal.until(&format!("127.0.0.1:{}> ", server.port()));
    terminal.type_in("DLOCK.ACQUIRE ");
    terminal.until("key owner [EX seconds|PX milliseconds");
    terminal.type_in("job:1 ");
    terminal.until("job:1 ");
    terminal.until("owner [EX seconds|PX milliseconds");
}
