//! The parsers know exactly the words that the descriptions of the commands (`spec`) have.

use std::collections::BTreeSet;

use dlock_core::Command;
use dlock_core::args::{Acquire, AcquireAll, Excerpt, Info, Malformed, Release, Renew, Session, Subcommand, Syntax};
use dlock_core::spec::{self, Argument, Keys, Spec};

use super::{LIMITS, words};

#[test]
fn each_parser_knows_the_words_of_its_description_and_no_others() {
    // The owner comes before the options.
    let before = ["a "];
    for command in Command::ALL.into_iter().filter(|command| *command != Command::Release) {
        let spec = spec::find(&format!("DLOCK.{}", command.name())).expect("a description");
        // The arguments before the options, such as the owner and the limit.
        let bare = spec.arguments.iter().take_while(|argument| argument.is_bare());
        let values: String = bare.map(|value| if let Argument::BareNumber(_) = value { "5 " } else { "a " }).collect();
        match spec.keys {
            Keys::Numbered(_) => {
                check(spec, &[&format!("1 k {values}")], |line| AcquireAll::parse(words(line), LIMITS).err());
            }
            _ => check(spec, &[&values], |line| Acquire::parse(words(line), command, LIMITS).err()),
        }
    }
    check(&spec::RELEASE, &before, |line| Release::parse(words(line)).err());
    check(&spec::RENEW, &before, |line| Renew::parse(words(line), LIMITS).err());
    // Some words are valid only behind others.
    check(&spec::INFO, &["", "FULL "], |line| Info::parse(words(line)).err());
    check(&spec::SESSIONS, &["id ", "id PX 300 ", "id CLOSE ", "id LIST "], |line| Session::parse(words(line)).err());
}

#[test]
fn the_log_knows_the_subcommands_of_its_description_and_no_others() {
    let known: Vec<_> = all_words().into_iter().filter(|word| Subcommand::of(word.as_bytes()).is_some()).collect();
    assert_eq!(known.into_iter().collect::<BTreeSet<_>>(), spec::LOG.words().into_iter().collect());
}

/// Tries all words of all commands, and a word of no command, behind each of the beginnings `before`. The parser must
/// know exactly those of `spec`, each behind at least one beginning.
#[track_caller]
fn check(spec: &Spec, before: &[&str], parse: impl Fn(&str) -> Option<Malformed>) {
    let is_known = |word: &&str| {
        let unknown = Some(Malformed::Syntax(Syntax::Unknown(Excerpt::of(word.as_bytes()))));
        before.iter().any(|before| parse(&format!("{before}{word} 1")) != unknown)
    };
    let known: BTreeSet<_> = all_words().into_iter().filter(is_known).collect();
    assert_eq!(known, spec.words().into_iter().collect(), "{}", spec.name);
}

fn all_words() -> BTreeSet<&'static str> {
    spec::COMMANDS.iter().flat_map(|spec| spec.words()).chain(["NOTHING"]).collect()
}
