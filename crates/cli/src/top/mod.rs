//! `dlock top`: shows locks on a terminal, and refreshes them.

mod columns;
mod data;
mod style;
mod view;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, queue};
use dlock_client::{Client, Error, LockInfo};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::sleep;

use crate::break_lock::{sentence, take};
use crate::{exit, fail};
use data::{Data, Look};
use style::Style;
use view::{Next, View};

pub async fn top(client: &Client, pattern: &[u8], interval: Duration) -> Result<u8, Error> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Ok(fail(exit::USAGE, "this is no terminal: dlock ls prints the same as JSON"));
    }
    let interval = interval.max(MIN_INTERVAL);
    // Servers are asked before the screen is taken, so that an error stays readable.
    let data = Data::ask(client, pattern, &Look::default()).await?;
    let screen = match Screen::take() {
        Ok(screen) => screen,
        Err(error) => return Ok(fail(exit::UNAVAILABLE, &error.to_string())),
    };
    let mut view = View::default();
    view.show(Ok(data));
    let (mut events, (asks, mut found)) = (read_events(), ask_in_background(client, pattern));
    let (mut is_asked, mut asked) = (false, Look::default());
    let mut pause = Box::pin(sleep(interval));
    while screen.draw(&mut view).is_ok() {
        tokio::select! {
            event = events.recv() => match event.map(|event| handle(&mut view, &event, &screen)) {
                None | Some(Next::End) => break,
                Some(Next::Take(lock)) => _ = asks.send(Ask::Take(lock)).await,
                // A lock that is opened is read at once.
                Some(Next::Go) if !is_asked && view.look() != asked => pause = Box::pin(sleep(Duration::ZERO)),
                Some(Next::Go) => {}
            },
            // A server that is slow is not asked twice at the same time.
            () = &mut pause, if !is_asked => {
                asked = view.look();
                is_asked = asks.send(Ask::Look(asked.clone())).await.is_ok();
            }
            Some(answer) = found.recv() => {
                match answer {
                    Answer::Look(data) => {
                        view.show(*data);
                        is_asked = false;
                    }
                    Answer::Taken(message) => {
                        view.tell(message);
                        asked = Look::default();
                    }
                }
                let rest = if view.look() == asked { interval } else { Duration::ZERO };
                pause = Box::pin(sleep(rest));
            }
        }
    }
    Ok(0)
}

enum Ask {
    Look(Look),
    /// Take the lock from these holders.
    Take(Box<LockInfo>),
}

enum Answer {
    Look(Box<Result<Data, Error>>),
    /// The outcome in a sentence.
    Taken(String),
}

/// Asks the servers in a task of its own, so that keys are handled meanwhile.
fn ask_in_background(client: &Client, pattern: &[u8]) -> (Sender<Ask>, Receiver<Answer>) {
    let (client, pattern) = (client.clone(), pattern.to_vec());
    let (asks, mut asked) = channel(4);
    let (finds, found) = channel(1);
    tokio::spawn(async move {
        while let Some(ask) = asked.recv().await {
            let answer = match ask {
                Ask::Look(look) => Answer::Look(Box::new(Data::ask(&client, &pattern, &look).await)),
                Ask::Take(lock) => Answer::Taken(match take(&client, &lock).await {
                    Ok((taken, next)) => sentence(&lock, &taken, next.as_ref()),
                    Err(error) => error.to_string(),
                }),
            };
            if finds.send(answer).await.is_err() {
                return;
            }
        }
    });
    (asks, found)
}

/// Reads the events of the terminal, on a thread: reading blocks.
fn read_events() -> Receiver<Event> {
    let (to, events) = channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = crossterm::event::read() {
            if to.blocking_send(event).is_err() {
                return;
            }
        }
    });
    events
}

fn handle(view: &mut View, event: &Event, screen: &Screen) -> Next {
    match event {
        Event::Key(KeyEvent { kind: KeyEventKind::Release, .. }) => Next::Go,
        Event::Key(KeyEvent { code: KeyCode::Char('c'), modifiers: KeyModifiers::CONTROL, .. }) => Next::End,
        Event::Key(key) => view.press(key.code),
        // Lines of the old size may have been wrapped.
        Event::Resize(..) => match screen.clear() {
            Ok(()) => Next::Go,
            Err(_) => Next::End,
        },
        _ => Next::Go,
    }
}

/// The terminal in raw mode, with the alternate screen. The drop restores what it showed before.
struct Screen;

impl Screen {
    fn take() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let screen = Self;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    fn clear(&self) -> io::Result<()> {
        execute!(io::stdout(), Clear(ClearType::All))
    }

    fn draw(&self, view: &mut View) -> io::Result<()> {
        let (width, height) = terminal::size()?;
        let cut = |line: &str| line.chars().take(usize::from(width)).collect::<String>();
        let mut out = io::stdout().lock();
        for (row, line) in (0..height).zip(view.lines(usize::from(width), usize::from(height))) {
            queue!(out, cursor::MoveTo(0, row))?;
            style(&mut out, line.style)?;
            queue!(out, Print(cut(&line.text)))?;
            queue!(out, SetAttribute(Attribute::Reset), ResetColor, Clear(ClearType::UntilNewLine))?;
        }
        out.flush()
    }
}

/// Sets the style of the text that follows. With `NO_COLOR` in the environment, there are no colors.
fn style(out: &mut impl Write, style: Style) -> io::Result<()> {
    let color = match style {
        Style::Waited => Color::Yellow,
        Style::Long | Style::Alert => Color::Red,
        Style::Head => return queue!(out, SetAttribute(Attribute::Bold)),
        Style::Title => return queue!(out, SetAttribute(Attribute::Underlined)),
        Style::Selected => return queue!(out, SetAttribute(Attribute::Reverse)),
        Style::Plain => return Ok(()),
    };
    queue!(out, SetForegroundColor(color))
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}

/// The shortest interval: a shorter one would only be load.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
