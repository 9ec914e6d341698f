//! Names for fencing tokens, so that the output of a scenario does not depend on their values.

use std::collections::BTreeMap;

use dlock_core::Token;

/// The names of tokens in a scenario: `t1`, `t2`, … in the order of grants, and `t1+500` for a number that a command
/// gives as `t1+500`.
#[derive(Default)]
pub struct TokenNames {
    names: BTreeMap<Token, String>,
    given: u64,
    highest: Option<Token>,
}

impl TokenNames {
    /// Names the token of a new hold. Fails unless the token is greater than those of all earlier holds.
    pub fn give(&mut self, token: Token) -> String {
        assert!(Some(token) > self.highest, "a new hold got {token:?} after {:?}", self.highest);
        self.highest = Some(token);
        self.given += 1;
        let name = format!("t{}", self.given);
        self.names.insert(token, name.clone());
        name
    }

    /// Returns the name of the token of a grant. A token without a name is that of a new hold, and gets the next name.
    pub fn name_or_give(&mut self, token: Token) -> String {
        if self.names.contains_key(&token) { self.name(token) } else { self.give(token) }
    }

    /// Records that a renewal with `MINTOKEN` has raised the server's token clock to at least this token.
    pub fn raise(&mut self, token: Token) {
        self.highest = self.highest.max(Some(token));
    }

    /// Returns the name of a token, or its number if it has no name.
    pub fn name(&self, token: Token) -> String {
        self.names.get(&token).cloned().unwrap_or_else(|| token.get().to_string())
    }

    /// Returns the token with a name: `t1`, or `t1+500` for a token that is 500 higher.
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
