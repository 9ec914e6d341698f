//! How a line of the screen looks.

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    /// The first line.
    Head,
    /// The heading of a table.
    Title,
    Selected,
    /// Requests wait for this lock.
    Waited,
    /// The first request has waited for long.
    Long,
    /// An error, or a question.
    Alert,
}
