//! `dlock top`: locks on a terminal, drawn again and again.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, poll, read};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, queue};
use dlock_client::{Client, Error, LockInfo};

use crate::output::table;
use crate::{exit, fail};

pub async fn top(client: &Client, pattern: &[u8], interval: Duration) -> Result<u8, Error> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Ok(fail(exit::USAGE, "this is no terminal: dlock ls prints the same as JSON"));
    }
    // Before the screen is taken, so that a wrong URL is told where it can be read.
    let mut locks = client.locks(pattern).await;
    if let Err(error) = locks {
        return Err(error);
    }
    let screen = match Screen::take() {
        Ok(screen) => screen,
        Err(error) => return Ok(fail(exit::UNAVAILABLE, &error.to_string())),
    };
    loop {
        if screen.draw(&locks).and_then(|()| ended(interval.max(MIN_INTERVAL), &screen, &locks)).unwrap_or(true) {
            return Ok(0);
        }
        locks = client.locks(pattern).await;
    }
}

/// Waits that long for a key that ends it. The screen is drawn again when its size changes.
fn ended(interval: Duration, screen: &Screen, locks: &Result<Vec<LockInfo>, Error>) -> io::Result<bool> {
    let until = Instant::now() + interval;
    while poll(until.saturating_duration_since(Instant::now()))? {
        match read()? {
            Event::Key(KeyEvent { code: KeyCode::Char('q') | KeyCode::Esc, .. }) => return Ok(true),
            Event::Key(KeyEvent { code: KeyCode::Char('c'), modifiers: KeyModifiers::CONTROL, .. }) => return Ok(true),
            Event::Resize(..) => screen.draw(locks)?,
            _ => {}
        }
    }
    Ok(false)
}

/// The terminal while it is ours. It gets back what it showed.
struct Screen;

impl Screen {
    fn take() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let screen = Self;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    fn draw(&self, locks: &Result<Vec<LockInfo>, Error>) -> io::Result<()> {
        let (width, height) = terminal::size()?;
        let cut = |line: &str| line.chars().take(usize::from(width)).collect::<String>();
        let mut out = io::stdout().lock();
        queue!(out, cursor::MoveTo(0, 0), Print(cut(&summary(locks))), Clear(ClearType::UntilNewLine))?;
        let lines = locks.as_ref().map(|locks| table(locks)).unwrap_or_default();
        for (row, line) in (2..height).zip(lines) {
            let look = if row == 2 { Attribute::Reverse } else { Attribute::Reset };
            queue!(out, cursor::MoveTo(0, row), SetAttribute(look), Print(cut(&line)))?;
            queue!(out, SetAttribute(Attribute::Reset), Clear(ClearType::UntilNewLine))?;
            queue!(out, cursor::MoveToNextLine(1))?;
        }
        queue!(out, Clear(ClearType::FromCursorDown))?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}

fn summary(locks: &Result<Vec<LockInfo>, Error>) -> String {
    match locks {
        Ok(locks) => {
            let waiters: u64 = locks.iter().map(|lock| lock.waiters).sum();
            format!("dlock top: {} locks, {waiters} waiting (q: quit)", locks.len())
        }
        Err(error) => format!("dlock top: {} (q: quit)", error),
    }
}

/// A faster one would be nothing but load.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
