//! Compares two transcripts of `redis-cli`, apart from what differs in each run: tokens, owners that the server makes
//! up, client ids and addresses, times, and milliseconds left, waited or held.
//!
//! Tokens, such owners and client ids are *names*. Each name in one transcript must stand for one name in the other,
//! and tokens must be in the same order.

use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The names in the written transcript, each with its name in the real one.
#[derive(Default)]
pub struct Names(BTreeMap<Name, Name>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Token(u64),
    Owner(String),
    Client(u64),
}

#[derive(Debug, PartialEq, Eq)]
enum Word<'a> {
    Plain(&'a str),
    Named(Name),
    Milliseconds,
    Address,
}

impl Names {
    /// Compares a written transcript with a real one. An error shows both. A last line `...` stands for any rest.
    pub fn compare(&mut self, written: &str, real: &str) -> Result<(), String> {
        let differ = || Err(format!("--- written\n{written}\n--- real\n{real}"));
        let beginning = written.trim_end().strip_suffix("\n...");
        let (expected, mut found) = (words(beginning.unwrap_or(written)), words(real));
        if beginning.is_some() {
            found.truncate(expected.len());
        }
        if expected.len() != found.len() {
            return differ();
        }
        for pair in expected.into_iter().zip(found) {
            match pair {
                (Word::Named(written), Word::Named(real)) if self.agree(&written, &real) => {}
                (written, real) if written == real && !matches!(written, Word::Named(_)) => {}
                _ => return differ(),
            }
        }
        Ok(())
    }

    /// Returns a written command with the highest written token in the place of `<token>`.
    pub fn fill(&self, command: &str) -> String {
        let tokens = self.0.keys().filter_map(|name| if let Name::Token(token) = name { Some(*token) } else { None });
        tokens.max().map_or_else(|| command.to_owned(), |token| command.replace("<token>", &token.to_string()))
    }

    /// Returns a written command with the real names.
    pub fn translate(&self, command: &str) -> String {
        let mut before = "";
        let translated = command.split(' ').map(|word| {
            let name = name_of(before, word);
            before = word;
            match name.and_then(|name| self.0.get(&name)) {
                Some(Name::Token(number) | Name::Client(number)) => number.to_string(),
                Some(Name::Owner(owner)) => owner.clone(),
                None => word.to_owned(),
            }
        });
        translated.collect::<Vec<_>>().join(" ")
    }

    /// Returns whether a written name stands for this real one. A new pair is remembered. Its tokens must have the
    /// same place among the tokens seen so far.
    fn agree(&mut self, written: &Name, real: &Name) -> bool {
        if let Some(known) = self.0.get(written) {
            return known == real;
        }
        let is_taken = self.0.values().any(|known| known == real);
        // Tokens come first among names. So the name before a token is a token, and the one after it may be none.
        let before = self.0.range(..written.clone()).next_back().map(|(_, known)| known);
        let after = self.0.range(written.clone()..).next().map(|(_, known)| known);
        let is_in_order = match (written, real) {
            (Name::Token(_), Name::Token(_)) => {
                before.is_none_or(|before| before < real)
                    && after.is_none_or(|after| !matches!(after, Name::Token(_)) || real < after)
            }
            (Name::Owner(_), Name::Owner(_)) | (Name::Client(_), Name::Client(_)) => true,
            _ => false,
        };
        self.0.insert(written.clone(), real.clone());
        !is_taken && is_in_order
    }
}

/// Splits a transcript at blanks and ends of lines. Durations of commands are left out.
fn words(text: &str) -> Vec<Word<'_>> {
    /// The meaning of the next integer of a reply.
    enum Next {
        Number,
        Milliseconds,
        Client,
    }
    let (mut next, mut before, mut words) = (Next::Number, "", Vec::new());
    for line in text.lines().map(str::trim_end).filter(|line| !is_duration(line)) {
        for word in line.split(' ') {
            let number = word.parse::<u64>().ok().filter(|_| before == "(integer)");
            words.push(match (number, &next) {
                (Some(_), Next::Milliseconds) => Word::Milliseconds,
                (Some(number), Next::Client) => Word::Named(Name::Client(number)),
                _ if word.trim_matches('"').parse::<SocketAddr>().is_ok() => Word::Address,
                _ => name_of(before, word).map_or(Word::Plain(word), Word::Named),
            });
            match word {
                "\"ttl\"" | "\"waiting\"" | "\"time\"" | "\"waited\"" | "\"held\"" | "PTTL" | "DLOCK.CHECK" => {
                    next = Next::Milliseconds
                }
                "\"client\"" => next = Next::Client,
                ">" | "(nil)" => next = Next::Number,
                _ if number.is_some() => next = Next::Number,
                _ => {}
            }
            before = word;
        }
        words.push(Word::Plain("\n"));
    }
    words
}

/// Returns the name that a word is, if it is one. A token has 16 digits until the year 2286. An owner that the server
/// makes up is a UUID. A client id follows `CLIENT UNBLOCK`.
fn name_of(before: &str, word: &str) -> Option<Name> {
    if before == "UNBLOCK" {
        return word.parse().ok().map(Name::Client);
    }
    let bare = word.trim_matches('"');
    if word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_digit()) {
        return word.parse().ok().map(Name::Token);
    }
    let is_uuid = bare.len() == 36
        && bare.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    is_uuid.then(|| Name::Owner(bare.to_owned()))
}

/// Returns whether a line is a duration such as `(1.52s)`, which `redis-cli` adds to a slow reply.
fn is_duration(line: &str) -> bool {
    let inner = line.strip_prefix('(').and_then(|line| line.strip_suffix("s)"));
    inner.is_some_and(|inner| inner.parse::<f64>().is_ok())
}

#[test]
fn transcripts_are_the_same_apart_from_names_and_times() {
    let written = "> DLOCK.RLOCK k a\n(integer) 1795213000000001\n> DLOCK.RLOCK k b\n(integer) 1795213000000002\n\
                   > DLOCK.CHECK k 1795213000000001\n(integer) 29999\n(0.61s)";
    let same = "> DLOCK.RLOCK k a\n(integer) 1800000000000001\n> DLOCK.RLOCK k b\n(integer) 1800000000000007\n\
                > DLOCK.CHECK k 1800000000000001\n(integer) 17";
    let cut = "> DLOCK.RLOCK k a\n(integer) 1795213000000001\n...";
    assert_eq!(Names::default().compare(cut, same), Ok(()));
    assert!(Names::default().compare(&cut.replace("k a", "k b"), same).is_err());
    let mut names = Names::default();
    assert_eq!(names.compare(written, same), Ok(()));
    assert_eq!(names.translate("DLOCK.CHECK k 1795213000000002"), "DLOCK.CHECK k 1800000000000007");
    assert_eq!(names.fill("DLOCK.CHECK k <token>"), "DLOCK.CHECK k 1795213000000002");
    for (from, to) in [
        ("k 1800000000000001", "k 1800000000000007"),
        ("(integer) 17", "(nil)"),
        ("k b\n(integer) 1800000000000007", "k b\n(nil)"),
        ("k b\n(integer) 1800000000000007", "k b\n(integer) 1800000000000001"),
        ("k b\n(integer) 1800000000000007", "k b\n(integer) 1800000000000000"),
        ("k b", "k c"),
    ] {
        let other = same.replace(from, to);
        assert!(other != same && Names::default().compare(written, &other).is_err(), "{other}");
    }
}
