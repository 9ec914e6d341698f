//! Tables that a program puts into a page that a person writes.

/// Puts each table between its marks, `<!-- NAME -->` and `<!-- end of NAME -->`.
///
/// # Errors
/// The page lacks the marks of a table.
pub fn put(page: &str, tables: &[(&str, String)]) -> Result<String, String> {
    let mut page = page.to_owned();
    for (name, table) in tables {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let place = page.find(&begin).map(|at| at + begin.len());
        let place = place.and_then(|from| Some(from..from + page.get(from..)?.find(&end)?));
        let place = place.ok_or_else(|| format!("the page has no place for {name}"))?;
        let table = table.trim_end();
        page.replace_range(place, &if table.is_empty() { String::new() } else { format!("\n{table}\n\n") });
    }
    Ok(page)
}

/// Returns a table in Markdown; nothing if it has no rows.
pub fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |").replace("|  |", "| |");
    let rule: Vec<&str> = head.iter().map(|_| "---").collect();
    let mut text = line(head) + &line(&rule);
    for row in &rows {
        text += &line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

/// The digits of a whole number in groups: `12345` as `12,345`.
pub fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{grouped, put};

    #[test]
    fn a_table_takes_the_place_of_the_one_before() {
        let page = "a\n\n<!-- x -->\n\n| old |\n\n<!-- end of x -->\n\nb\n";
        let put = |table: &str| put(page, &[("x", table.to_owned())]).unwrap_or_default();
        assert_eq!(put("| new |\n"), page.replace("old", "new"));
        assert_eq!(put(""), "a\n\n<!-- x -->\n<!-- end of x -->\n\nb\n");
        assert!(super::put(page, &[("y", String::new())]).is_err());
    }

    #[test]
    fn digits_are_grouped_by_threes() {
        for (digits, text) in [("0", "0"), ("999", "999"), ("1000", "1,000"), ("-123456", "-123,456")] {
            assert_eq!(grouped(digits), text);
        }
    }
}
