//! What the module remembers beside the keys: the token clock, settings and counters.

use std::cell::Cell;

use dlock_core::{Hold, Token, TokenClock};

use crate::config::Settings;
use crate::ffi::MainThread;
use crate::ffi::context::Now;
use crate::stats::Stats;

/// The module's state.
pub struct State {
    tokens: Cell<TokenClock>,
    /// What the operator set.
    pub settings: Settings,
    /// What is counted for `INFO dlock`.
    pub stats: Stats,
}

/// The module's state. Nothing in it is ever borrowed: cells only, so that any callback may reach it at any time.
pub fn state() -> &'static State {
    static STATE: MainThread<State> =
        MainThread::new(State { tokens: Cell::new(TokenClock::new()), settings: Settings::new(), stats: Stats::new() });
    &STATE
}

impl State {
    /// The token the next new hold gets.
    pub fn next_token(&self, now: Now) -> Option<Token> {
        self.tokens.get().next(now.micros())
    }

    /// The highest token seen, 0 if none.
    pub fn last_token(&self) -> u64 {
        self.tokens.get().last()
    }

    /// Takes note of a token.
    pub fn observe(&self, token: Token) {
        self.with_tokens(|tokens| tokens.observe(token));
    }

    /// Takes note of the tokens of holds.
    pub fn observe_all<'a>(&self, holds: impl Iterator<Item = &'a Hold>) {
        self.with_tokens(|tokens| tokens.observe_all(holds));
    }

    /// Lets `body` move the token clock.
    pub fn with_tokens<T>(&self, body: impl FnOnce(&mut TokenClock) -> T) -> T {
        let mut tokens = self.tokens.get();
        let result = body(&mut tokens);
        self.tokens.set(tokens);
        result
    }
}
