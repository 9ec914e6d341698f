//! `dlock top`: locks on a terminal, drawn again and again.

mod view;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, queue};
use dlock_client::{Client, Error};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::sleep;

use crate::{exit, fail, log};
use view::{Data, Look, View};

pub async fn top(client: &Client, pattern: &[u8], interval: Duration) -> Result<u8, Error> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Ok(fail(exit::USAGE, "this is no terminal: dlock ls prints the same as JSON"));
    }
    let interval = interval.max(MIN_INTERVAL);
    // Before the screen is taken, so that a wrong URL is told where it can be read.
    let data = look(client, pattern, Look::default()).await?;
    let screen = match Screen::take() {
        Ok(screen) => screen,
        Err(error) => return Ok(fail(exit::UNAVAILABLE, &error.to_string())),
    };
    let mut view = View::default();
    view.show(Ok(data));
    let (mut events, (asks, mut found)) = (read_events(), ask_in_background(client, pattern));
    let mut is_asked = false;
    let mut pause = Box::pin(sleep(interval));
    while screen.draw(&mut view).is_ok() {
        tokio::select! {
            event = events.recv() => match event {
                Some(event) if handle(&mut view, &event, &screen) => {}
                _ => break,
            },
            // A server that is slow is not asked twice at the same time.
            () = &mut pause, if !is_asked => is_asked = asks.send(view.look()).await.is_ok(),
            Some(data) = found.recv() => {
                view.show(data);
                is_asked = false;
                pause = Box::pin(sleep(interval));
            }
        }
    }
    Ok(0)
}

/// Asks the servers whenever it is told to, while the keys are still heard.
fn ask_in_background(client: &Client, pattern: &[u8]) -> (Sender<Look>, Receiver<Result<Data, Error>>) {
    let (client, pattern) = (client.clone(), pattern.to_vec());
    let (asks, mut asked) = channel(1);
    let (finds, found) = channel(1);
    tokio::spawn(async move {
        while let Some(wanted) = asked.recv().await {
            if finds.send(look(&client, &pattern, wanted).await).await.is_err() {
                return;
            }
        }
    });
    (asks, found)
}

async fn look(client: &Client, pattern: &[u8], wanted: Look) -> Result<Data, Error> {
    let mut found = client.survey(pattern, 1).await?;
    if found.answers.is_empty()
        && let Some((_, error)) = found.missing.pop()
    {
        return Err(error);
    }
    // A user who may not read the log still sees the locks.
    let log = if wanted.log {
        log::newest(client, LOG).await.unwrap_or_else(|error| vec![error.to_string()])
    } else {
        Vec::new()
    };
    let addresses = if wanted.addresses { client.addresses().await?.answers } else { Vec::new() };
    Ok(Data::new(found, log, addresses))
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

/// Returns false if the key ends it.
fn handle(view: &mut View, event: &Event, screen: &Screen) -> bool {
    match event {
        Event::Key(KeyEvent { kind: KeyEventKind::Release, .. }) => true,
        Event::Key(KeyEvent { code: KeyCode::Char('c'), modifiers: KeyModifiers::CONTROL, .. }) => false,
        Event::Key(key) => view.press(key.code),
        // Lines of the old size may have been wrapped.
        Event::Resize(..) => screen.clear().is_ok(),
        _ => true,
    }
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

    fn clear(&self) -> io::Result<()> {
        execute!(io::stdout(), Clear(ClearType::All))
    }

    fn draw(&self, view: &mut View) -> io::Result<()> {
        let (width, height) = terminal::size()?;
        let cut = |line: &str| line.chars().take(usize::from(width)).collect::<String>();
        let mut out = io::stdout().lock();
        for (row, line) in (0..height).zip(view.lines(usize::from(height))) {
            let look = if line.is_title { Attribute::Reverse } else { Attribute::Reset };
            queue!(out, cursor::MoveTo(0, row), SetAttribute(look), Print(cut(&line.text)))?;
            queue!(out, SetAttribute(Attribute::Reset), Clear(ClearType::UntilNewLine))?;
        }
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}

/// A faster one would be nothing but load.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// How many entries of the log are read, which is more than a pane shows.
const LOG: u64 = 20;
