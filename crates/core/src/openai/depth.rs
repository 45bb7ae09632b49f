//! How deep a JSON text is nested, without reading it.

use memchr::memchr2;

/// The deepest nesting that is taken: that of `serde_json`, which counts only in what it reads.
pub(super) const MAX_DEPTH: usize = 127;

/// Whether more than `most` arrays and objects are open anywhere. Of what is not JSON it says no more than that.
pub(super) fn is_deeper_than(text: &[u8], most: usize) -> bool {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > most {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => at = after_string(text, at),
            _ => {}
        }
    }
    false
}

/// The place behind the string that begins here.
fn after_string(text: &[u8], mut at: usize) -> usize {
    loop {
        match memchr2(b'"', b'\\', text.get(at..).unwrap_or_default()) {
            None => return text.len(),
            Some(found) if text[at + found] == b'"' => return at + found + 1,
            // What is behind a backslash ends no string.
            Some(found) => at += found + 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The deepest nesting by counting every byte.
    fn depth(text: &str) -> usize {
        let (mut depth, mut most, mut inside, mut escaped) = (0_usize, 0, false, false);
        for c in text.chars() {
            match c {
                _ if escaped => escaped = false,
                '\\' if inside => escaped = true,
                '"' => inside = !inside,
                '[' | '{' if !inside => {
                    depth += 1;
                    most = most.max(depth);
                }
                ']' | '}' if !inside => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        most
    }

    #[test]
    fn brackets_count_outside_of_strings_only() {
        for text in [
            "",
            "[[1],[2,[3]]]",
            r#"{"a":"[[[[","b":["]"]}"#,
            r#"{"a\"[[[":[1]}"#,
            r#"["\\",[["\\\"[["]]]"#,
            r#"["open"#,
            "[\"\\",
            "]]][",
        ] {
            let deepest = depth(text);
            assert!(!is_deeper_than(text.as_bytes(), deepest), "{text}");
            assert!(deepest == 0 || is_deeper_than(text.as_bytes(), deepest - 1), "{text}");
        }
    }
}
