//! Names for fencing tokens, so that a story is the same at any time.

use std::collections::BTreeMap;

use dlock_core::Token;

/// The names that tokens have in a story: `t1`, `t2`, … as they are given, `t1+500` as the story calls them.
#[derive(Default)]
pub struct TokenNames {
    names: BTreeMap<Token, String>,
    given: u64,
    highest: Option<Token>,
}

impl TokenNames {
    /// Names the token of a new hold. It has to be greater than every token that a hold had before.
    pub fn give(&mut self, token: Token) -> String {
        assert!(Some(token) > self.highest, "a new hold got {token:?} after {:?}", self.highest);
        self.highest = Some(token);
        self.given += 1;
        let name = format!("t{}", self.given);
        self.names.insert(token, name.clone());
        name
    }

    /// The name of a token that a waiter got: new, or known.
    pub fn name_or_give(&mut self, token: Token) -> String {
        if self.names.contains_key(&token) { self.name(token) } else { self.give(token) }
    }

    /// A hold has this token at least.
    pub fn lift(&mut self, token: Token) {
        self.highest = self.highest.max(Some(token));
    }

    /// The name of a token the story knows, else its number.
    pub fn name(&self, token: Token) -> String {
        self.names.get(&token).cloned().unwrap_or_else(|| token.get().to_string())
    }

    /// The token called `t1`, or `t1+500`, so much later.
    pub fn resolve(&mut self, word: &str) -> Token {
        let (name, more) = word.split_once('+').unwrap_or((word, "0"));
        let more: u64 = more.parse().unwrap_or_else(|_| panic!("{word}: no number after the +"));
        let known = self.names.iter().find(|(_, known)| *known == name);
        let (base, _) = known.unwrap_or_else(|| panic!("{word}: no token was called that"));
        let token = Token::new(base.get() + more).unwrap_or_else(|| panic!("{word}: too large for a token"));
        self.names.entry(token).or_insert_with(|| word.to_owned());
        token
    }
}
