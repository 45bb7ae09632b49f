//! Text that can steer nothing.

/// A text on one line: breaks and tabs become spaces, control characters and those that turn the direction of
/// writing are replaced.
pub(crate) fn plain(text: &str) -> String {
    let one = |c: char| match c {
        '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => ' ',
        c if steers(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(one).collect()
}

/// Lines to be copied: breaks stay, the rest is as in [`plain`].
pub(super) fn lines(text: &str) -> Vec<String> {
    text.lines().map(plain).collect()
}

/// Whether a character shows nothing itself and changes how others show.
fn steers(c: char) -> bool {
    let turns = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    turns || c.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_on_its_line_and_turns_nothing_around() {
        assert_eq!(plain("a\nb\r\tc\u{2028}d"), "a b  c d");
        assert_eq!(plain("a\u{1b}[2J\u{202e}b\u{0}"), "a\u{fffd}[2J\u{fffd}b\u{fffd}");
        assert_eq!(lines("a\nb\u{7}"), ["a", "b\u{fffd}"]);
    }
}
