//! The styles of the lines of the screen.

/// The style of a line. `style` in `mod.rs` has its color or attribute.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    /// The summary, the heading of the log, or a message.
    Head,
    /// The heading of a table.
    Title,
    Selected,
    /// A lock for which requests wait.
    Waited,
    /// A lock for which the first request has waited for a minute or more.
    Long,
    /// An error, or a question.
    Alert,
}
