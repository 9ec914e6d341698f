//! Plots as SVG that reads well on light and dark ground: the colours are classes, and the reader's browser chooses.

use std::fmt::Write;

pub mod tables;

/// A picture in the making.
pub struct Canvas {
    width: f64,
    height: f64,
    body: String,
}

/// The part of a text that is at its point.
#[derive(Debug, Clone, Copy)]
pub enum Anchor {
    /// The beginning.
    Start,
    /// The middle.
    Middle,
    /// The end.
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

impl Canvas {
    /// An empty picture.
    pub fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// Adds a text.
    pub fn text(&mut self, class: &str, [x, y]: [f64; 2], anchor: Anchor, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.body,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{}\">{}</text>",
            anchor.name(),
            escaped(text)
        );
    }

    /// Adds a filled rectangle; the point is its upper left corner.
    pub fn bar(&mut self, class: &str, [x, y]: [f64; 2], width: f64, height: f64) {
        let _ = writeln!(
            self.body,
            "<rect class=\"{class} fill\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\"/>"
        );
    }

    /// Adds a line through these points.
    pub fn line(&mut self, class: &str, points: &[[f64; 2]]) {
        let points: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.body, "<polyline class=\"{class} line\" points=\"{}\"/>", points.join(" "));
    }

    /// Adds a dot.
    pub fn dot(&mut self, class: &str, [x, y]: [f64; 2]) {
        let _ = writeln!(self.body, "<circle class=\"{class} fill\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>");
    }

    /// Returns the picture; the title is for those who cannot see it.
    pub fn finish(self, title: &str) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n{body}</svg>\n",
            escaped(title)
        )
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The class of what is dlock's own.
pub const OWN: &str = "own";
/// The classes of its rivals.
pub const RIVALS: [&str; 4] = ["rival1", "rival2", "rival3", "rival4"];

const STYLE: &str = "\
text { font: 13px -apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif; fill: #1f2328 }
text.head { font-size: 15px; font-weight: 600 }
text.dim { fill: #59636e; font-size: 12px }
.line { fill: none; stroke-width: 2; stroke-linejoin: round }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.mark { stroke: #1f2328; stroke-width: 1.2 }
.own.fill, text.own { fill: #0969da } .own.line { stroke: #0969da; stroke-width: 3 } text.own { font-weight: 600 }
.rival1.fill, text.rival1 { fill: #9a6700 } .rival1.line { stroke: #9a6700 }
.rival2.fill, text.rival2 { fill: #8250df } .rival2.line { stroke: #8250df }
.rival3.fill, text.rival3 { fill: #1a7f37 } .rival3.line { stroke: #1a7f37 }
.rival4.fill, text.rival4 { fill: #cf222e } .rival4.line { stroke: #cf222e }
.plain.fill { fill: #afb8c1 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
text.dim { fill: #9198a1 }
.grid { stroke: #3d444d }
.mark { stroke: #f0f6fc }
.own.fill, text.own { fill: #4493f8 } .own.line { stroke: #4493f8 }
.rival1.fill, text.rival1 { fill: #d29922 } .rival1.line { stroke: #d29922 }
.rival2.fill, text.rival2 { fill: #ab7df8 } .rival2.line { stroke: #ab7df8 }
.rival3.fill, text.rival3 { fill: #3fb950 } .rival3.line { stroke: #3fb950 }
.rival4.fill, text.rival4 { fill: #f85149 } .rival4.line { stroke: #f85149 }
.plain.fill { fill: #656c76 }
}
";
